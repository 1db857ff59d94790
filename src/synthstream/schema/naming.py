"""What the names of columns say. Only names are looked at, which are public."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Words in the names of columns that are keys of persons.
_KEYS = """
id ids uid uuid guid person persons people patient rider user customer client member passenger driver employee student
pupil subscriber account citizen resident tenant household email phone ssn mrn passport imsi msisdn
kunde kundennr kundennummer patientennr patientennummer personalnummer matrikelnummer
"""
_PERSON = frozenset(_KEYS.split())
# Words that tell who somebody is, where they live, or how they are reached.
_TELLING = """
mail telephone telefon fax mobile surname firstname lastname fullname username vorname nachname familienname iban dob
birthdate birthday geburtsdatum geburtstag anschrift adresse address kennzeichen signature
"""
_TOLD = frozenset(_TELLING.split())
_TOGETHER = re.compile(
    r"\b(?:first|last|full|family|given|middle|maiden|user) name\b|\b(?:birth date|date of birth)\b|^name$"
)

# Words at the end of a name that say what sort of person it is, not who.
_SORTS = frozenset({"type", "class", "casual", "kind", "category", "status", "group", "level"})

_MOMENT = frozenset({"time", "date", "datetime", "timestamp", "day", "when"})

# Words of coordinates in degrees.
LATITUDE = frozenset({"lat", "latitude", "latitud", "latitudine", "breitengrad"})
LONGITUDE = frozenset({"lon", "lng", "long", "longitude", "longitud", "longitudine", "längengrad", "laengengrad"})

# Columns that tables of counts and comparisons have beside those of the schema.
_ANSWERS = """
count share measured stderr since measured_at model_error then now difference since_then measured_at_then z beyond_noise
"""
ANSWERS = frozenset(_ANSWERS.split())


def clash(names: Iterable[str]) -> str:
    """What to do about names that tables of counts have for columns of their own, in a sentence; empty if none has.

    Example:
        >>> clash(["ward", "Count"]), clash(["z"])[:42]
        ('', "columns: name = 'z' is what tables of coun")
    """
    found = next((name for name in names if name in ANSWERS), None)
    if found is None:
        return ""
    return (
        f"columns: name = {found!r} is what tables of counts call a column of their own. Say another name, and which "
        f'column of the rows it is: name = "my_{found}", from = "{found}"'
    )


def words_of(column: str) -> list[str]:
    """Words of a name, without numbers, in small letters."""
    return [word.lower() for word in re.findall(r"[^\W\d_a-z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+", column)]


def names_a_person(column: str) -> bool:
    """Whether a column's name sounds like the key of a person.

    Example:
        >>> [names_a_person(name) for name in ("rider_id", "PatientNr", "Kundennr", "Owner Move In", "user_type")]
        [True, True, True, False, False]
    """
    words = words_of(column)
    return not _PERSON.isdisjoint(words) and words[-1] not in _SORTS


def identifies(column: str) -> bool:
    """Whether a column's name says that it identifies somebody.

    Example:
        >>> [identifies(name) for name in ("Patient_ID", "E-Mail", "lastName", "Station name", "addressType")]
        [True, True, True, False, False]
    """
    words = words_of(column)
    if words and words[-1] in _SORTS:
        return False
    together = " ".join(words)
    return names_a_person(column) or not _TOLD.isdisjoint(words) or _TOGETHER.search(together) is not None


def names_a_moment(column: str) -> bool:
    """Whether a column's name says that it holds times.

    Example:
        >>> [names_a_moment(name) for name in ("pickup_time", "eventDate", "lifetime")]
        [True, True, False]
    """
    return not _MOMENT.isdisjoint(words_of(column))


def coordinates_of(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Pairs of columns that are a latitude and a longitude by their names, after what these have in common.

    Example:
        >>> coordinates_of(["dropoff_lng", "pickupLat", "lat2", "lat", "pickupLong", "Longitude", "dropoff_lat"])
        [('pickup', 'pickupLat', 'pickupLong'), ('', 'lat', 'Longitude'), ('dropoff', 'dropoff_lat', 'dropoff_lng')]
        >>> coordinates_of(["Start_Längengrad", "Start_Breitengrad"])
        [('start', 'Start_Breitengrad', 'Start_Längengrad')]
    """
    latitudes, longitudes = dict[str, str](), dict[str, str]()
    for name in names:
        words = [*words_of(name), *re.findall(r"\d+", name)]
        for axis, known in ((latitudes, LATITUDE), (longitudes, LONGITUDE)):
            if not known.isdisjoint(words):
                axis.setdefault("_".join(word for word in words if word not in known), name)
    return [(rest, name, longitudes[rest]) for rest, name in latitudes.items() if rest in longitudes]
