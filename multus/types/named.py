"""``NamedTuple`` and ``StrEnum`` as the standard library has them, of which each call of a binary uses very little.

Without ``typing``, ``collections``, ``enum`` and source that is compiled as it goes, a call costs 11 ms less.  Type checkers
see the standard library's own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from enum import StrEnum as StrEnum
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter

    class _Values(tuple):
        """What all named tuples do."""

        __slots__ = ()

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = cls._completed(values, named)
            return tuple.__new__(cls, values)

        @classmethod
        def _completed(cls, values, named):
            """All values: those given by position, then those by name, then the defaults."""
            if len(values) > len(cls._fields):
                raise TypeError(f"{cls.__name__} takes {len(cls._fields)} values, {len(values)} were given")
            rest = cls._fields[len(values) :]
            if unknown := [name for name in named if name not in rest]:
                raise TypeError(f"{cls.__name__} got unexpected values, or a second time: {', '.join(unknown)}")
            found = {**cls._field_defaults, **named}
            if missing := [field for field in rest if field not in found]:
                raise TypeError(f"{cls.__name__} lacks values: {', '.join(missing)}")
            return (*values, *[found[field] for field in rest])

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes):
            return type(self)(**{**self._asdict(), **changes})

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{field}={value!r}' for field, value in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    class _Definition(type):
        """Makes a named tuple of a class body: annotations are the fields, assignments their defaults."""

        def __new__(cls, name, bases, namespace):
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace[field] for field in fields if field in namespace}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default follows one that has a default")
            namespace |= {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
            namespace |= {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return type(name, (_Values,), namespace)

    class NamedTuple(metaclass=_Definition):
        """The base to derive from."""

    class _Members(type):
        """Makes the members of a class body: names in capitals."""

        def __new__(cls, name, bases, namespace):
            made = super().__new__(cls, name, bases, {key: value for key, value in namespace.items() if not key.isupper()})
            made.__members__ = {key: str.__new__(made, value) for key, value in namespace.items() if key.isupper()}
            for key, member in made.__members__.items():
                setattr(made, key, member)
            return made

        def __call__(cls, value):
            for member in cls.__members__.values():
                if member == value:
                    return member
            raise ValueError(f"{value!r} is not a valid {cls.__name__}")

        def __iter__(cls):
            return iter(cls.__members__.values())

    class StrEnum(str, metaclass=_Members):
        """The base to derive from."""

        __slots__ = ()

        def __reduce__(self):
            return type(self), (str(self),)
