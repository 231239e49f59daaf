//! From when to when a certificate is valid.
//!
//! rustls reads these dates when it verifies a certificate of a peer, and shows them for none of our
//! own. Two dates are all that is wanted, so the beginning of the certificate is read here; what has
//! another shape has no dates. (X.509 in DER, RFC 5280, section 4.1.)

/// In seconds of Unix time, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which old certificates do not have.
const VERSION: u8 = 0xa0;

impl Validity {
    /// The dates of a certificate; `None` if it cannot be read.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (certificate, _) = expect(certificate, SEQUENCE)?;
        let (mut fields, _) = expect(certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            fields = element(fields)?.rest;
        }
        // The serial number, the algorithm of the signature, and the issuer.
        for _ in 0..3 {
            fields = element(fields)?.rest;
        }
        let (dates, _) = expect(fields, SEQUENCE)?;
        let first = element(dates)?;
        let second = element(first.rest)?;
        Some(Self {
            not_before: time(&first)?,
            not_after: time(&second)?,
        })
    }
}

/// One element of DER.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let element = element(bytes)?;
    (element.tag == tag).then_some((element.content, element.rest))
}

fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, bytes) = bytes.split_first()?;
    let (&short, bytes) = bytes.split_first()?;
    let (length, bytes) = match short {
        0..=0x7f => (usize::from(short), bytes),
        // Longer than four bytes is longer than any certificate.
        0x81..=0x84 => {
            let (digits, bytes) = bytes.split_at_checked(usize::from(short - 0x80))?;
            let length = digits
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, bytes)
        }
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}

/// `YYMMDDHHMMSSZ` or, from 2050 on, `YYYYMMDDHHMMSSZ`. Before 1970 is 1970.
fn time(element: &Element<'_>) -> Option<u64> {
    let text = std::str::from_utf8(element.content).ok()?;
    let text = text.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |part: &str| part.parse::<i64>().ok();
    let (year, rest) = match (element.tag, text.len()) {
        (UTC_TIME, 12) => {
            let year = number(&text[..2])?;
            (if year < 50 { 2000 } else { 1900 } + year, &text[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&text[..4])?, &text[4..]),
        _ => return None,
    };
    let mut parts = (0..5).map(|index| number(&rest[2 * index..2 * index + 2]));
    let mut next = || parts.next().flatten();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. A year begins in March here, so that the
/// day that leap years add is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year / 4 - year / 100 + year / 400;
    365 * year + leap_days + day_of_year - 719_468
}

/// A time for people, in UTC.
pub(super) fn shown_time(seconds: u64) -> String {
    let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds));
    time.map_or_else(String::new, |time| {
        humantime::format_rfc3339_seconds(time).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tag: u8, text: &str) -> Option<u64> {
        let content = text.as_bytes();
        time(&Element {
            tag,
            content,
            rest: &[],
        })
    }

    #[test]
    fn reads_both_forms_of_times() {
        for (tag, text, shown) in [
            (UTC_TIME, "700101000000Z", "1970-01-01T00:00:00Z"),
            (UTC_TIME, "000229235959Z", "2000-02-29T23:59:59Z"),
            (UTC_TIME, "491231235959Z", "2049-12-31T23:59:59Z"),
            (GENERALIZED_TIME, "20500301010203Z", "2050-03-01T01:02:03Z"),
            (GENERALIZED_TIME, "21000301000000Z", "2100-03-01T00:00:00Z"),
            (GENERALIZED_TIME, "99991231235959Z", "9999-12-31T23:59:59Z"),
        ] {
            let seconds = read(tag, text).unwrap();
            assert_eq!(shown_time(seconds), shown, "{text}");
        }
        assert_eq!(read(UTC_TIME, "500101000000Z"), Some(0));
    }

    #[test]
    fn refuses_other_shapes_without_panic() {
        for text in [
            "",
            "Z",
            "700101000000",
            "7001010000Z",
            "701301000000Z",
            "70-101000000Z",
        ] {
            assert_eq!(read(UTC_TIME, text), None, "{text}");
        }
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let der = made.cert.der();
        assert!(Validity::of(der).is_some());
        for length in 0..der.len() {
            Validity::of(&der[..length]);
        }
        for position in 0..der.len().min(200) {
            for byte in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.to_vec();
                changed[position] = byte;
                Validity::of(&changed);
            }
        }
    }
}
