//! The `Date` of responses, made once a second for each worker.

use std::cell::RefCell;

use policy::time::WallTime;

thread_local! {
    /// The second that the text was made for, and the text.
    static LAST: RefCell<(i64, [u8; LENGTH])> = const { RefCell::new((i64::MIN, [0; LENGTH])) };
}

const LENGTH: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

/// Appends `now` as the value of a `Date`.
pub(super) fn put_date(text: &mut Vec<u8>, now: WallTime) {
    let second = now.as_unix_millis().div_euclid(1000);
    LAST.with_borrow_mut(|(last, date)| {
        if *last != second {
            (*last, *date) = (second, format(second));
        }
        text.extend_from_slice(date);
    });
}

const DAY: i64 = 86_400;
const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A second since 1970 in the form that HTTP prescribes (RFC 9110, section 5.6.7). What has no year of
/// four digits becomes the first or last second that has.
fn format(second: i64) -> [u8; LENGTH] {
    let second = second.clamp(-62_167_219_200, 253_402_300_799);
    let (days, time) = (second.div_euclid(DAY), second.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    text[..3].copy_from_slice(DAYS[index(days.rem_euclid(7))]);
    text[8..11].copy_from_slice(MONTHS[index(month - 1)]);
    for (place, number) in [
        (5, day),
        (12, year / 100),
        (14, year % 100),
        (17, time / 3600),
        (20, time / 60 % 60),
        (23, time % 60),
    ] {
        text[place] = digit(number / 10);
        text[place + 1] = digit(number % 10);
    }
    text
}

/// Year, month and day of a day since 1970. Years are counted from March on, so that the leap day is
/// their last.
fn civil(days: i64) -> (i64, i64, i64) {
    /// Days of 400 years, and from 1 March of the year 0 to 1970.
    const ERA: i64 = 146_097;
    const BEFORE: i64 = 719_468;
    let (era, day) = (
        (days + BEFORE).div_euclid(ERA),
        (days + BEFORE).rem_euclid(ERA),
    );
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next, month, day)
}

fn index(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn digit(number: i64) -> u8 {
    b'0' + u8::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(second: i64) -> String {
        let mut text = Vec::new();
        put_date(&mut text, WallTime::from_unix_millis(second * 1000 + 999));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn writes_known_dates() {
        for (second, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
        ] {
            assert_eq!(date(second), expected);
            // From memory, too.
            assert_eq!(date(second), expected);
        }
    }

    #[test]
    fn counts_the_days_of_every_month() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..366 * 500 {
            assert_eq!(civil(days), (year, month, day));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 if is_leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (month, day) if day == last => (year, month + 1, 1),
                (month, day) => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn stays_within_years_of_four_digits() {
        assert_eq!(date(i64::MAX / 2000), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(date(i64::MIN / 2000), "Sat, 01 Jan 0000 00:00:00 GMT");
    }
}
