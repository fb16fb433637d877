"""The reader of calendars (iCalendar) and contacts (vCard)."""

from tests.support.documents import one, reason
from vectorforge.ingestion.extract import media

CALENDAR = r"""BEGIN:VCALENDAR
VERSION:2.0
X-WR-CALNAME:Team plan
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:19701025T030000
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
UID:1@example.com
DTSTAMP:20260101T000000Z
DTSTART;TZID=Europe/Berlin:20260302T100000
DTEND;TZID="Europe/Berlin":20260302T113000
SUMMARY;LANGUAGE=en:Planning\, first
  part
LOCATION:Room 4\; left wing
RRULE:FREQ=WEEKLY;BYDAY=MO,WE;UNTIL=20260601T080000Z
ORGANIZER;CN=Ann Berg:mailto:ann@example.com
ATTENDEE;CN="Berg: Bo";PARTSTAT=DECLINED;RSVP=TRUE:MAILTO:bo@example.com
ATTENDEE;CN=cy@example.com;PARTSTAT=NEEDS-ACTION:mailto:cy@example.com
DESCRIPTION:Agenda:\n\n1. Budget\nC:\\plan
STATUS:CONFIRMED
BEGIN:VALARM
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20260304
DTEND;VALUE=DATE:20260307
SUMMARY:Fair
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20260501
DTEND;VALUE=DATE:20260502
SUMMARY:Holiday
END:VEVENT
BEGIN:VTODO
SUMMARY:Book rooms
DUE:20260303T170000Z
END:VTODO
END:VCALENDAR
""".replace("\n", "\r\n")


def test_events_and_tasks_are_paragraphs() -> None:
    document = one(CALENDAR.encode(), "a.ics")
    assert document.text.split("\n\n") == [
        (
            "summary: Planning, first part; start: 2026-03-02 10:00 Europe/Berlin; "
            "end: 2026-03-02 11:30 Europe/Berlin; "
            "repeats: FREQ=WEEKLY, BYDAY=MO,WE, UNTIL=2026-06-01 08:00 UTC; "
            "status: CONFIRMED; location: Room 4; left wing; organizer: Ann Berg <ann@example.com>; "
            "attendees: Berg: Bo <bo@example.com> (declined), cy@example.com; "
            "description: Agenda:\n1. Budget\nC:\\plan"
        ),
        "summary: Fair; start: 2026-03-04; end: 2026-03-06",
        "summary: Holiday; start: 2026-05-01; end: 2026-05-01",
        "summary: Book rooms; due: 2026-03-03 17:00 UTC",
    ]
    assert (document.title, document.media_type) == ("Team plan", media.CALENDAR)


def test_line_folded_within_a_character_is_joined() -> None:
    content = "BEGIN:VEVENT\nSUMMARY:Käse\nEND:VEVENT".encode().replace(b"\xc3\xa4", b"\xc3\n \xa4")
    document = one(content, "a", "text/calendar; charset=utf-8")
    assert (document.text, document.warnings) == ("summary: Käse", ())


def test_damaged_calendar_is_read_as_far_as_it_is_one() -> None:
    content = (
        b"BEGIN:VEVENT\nno property\nBEGIN:VALARM\nSUMMARY:Alarm\nEND:VEVENT\nEND:VEVENT\nBEGIN:VEVENT\n"
    )
    content += b"SUMMARY:First\nDTEND:20261345\nBEGIN:VEVENT\nDTSTART:soon\nSUMMARY:Second"
    assert one(content, "a.ics").text == "summary: First; end: 2026-13-45\n\nsummary: Second; start: soon"
    assert reason(b"BEGIN:VCALENDAR\nEND:VCALENDAR", "a.ics") == "empty"


def test_contacts_are_paragraphs() -> None:
    contacts = """BEGIN:VCARD
VERSION:4.0
N:Berg;Ann;;Dr.;
FN:Dr. Ann Berg
ORG:Example\\, Inc.;Sales
item1.TEL;TYPE="cell,voice":tel:+49-30-1
TEL;TYPE=pref:+49-30-2
EMAIL:ann@example.com
ADR;TYPE=work:;;Main Street 1;Ulm;;89073;Germany
BDAY:19800315
PHOTO;ENCODING=b;TYPE=JPEG:AAAA
END:VCARD
BEGIN:VCARD
VERSION:2.1
N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;Bo;;;
TEL;CELL:+49 30 3
NOTE;ENCODING=QUOTED-PRINTABLE:One=0D=0A=
two
END:VCARD"""
    document = one(contacts.encode(), "a.vcf")
    assert document.text.split("\n\n") == [
        (
            "name: Dr. Ann Berg; organization: Example, Inc., Sales; email: ann@example.com; "
            "phone: +49-30-1 (cell), +49-30-2; "
            "address: Main Street 1, Ulm, 89073, Germany (work); birthday: 1980-03-15"
        ),
        "name: Müller, Bo; phone: +49 30 3 (cell); note: One\ntwo",
    ]
    assert one(contacts.encode(), "a", "text/vcard").text == document.text
