//! Text and numbers as the page shows them.

use std::fmt::Write;
use std::time::Duration;

use policy::duration::Rounded;
use policy::time::WallTime;

/// How many characters of a foreign text are shown.
const MAX_SHOWN: usize = 300;

/// Foreign text as HTML. Control characters and those that change the direction of text or have no
/// width become visible, as in `⟨U+202E⟩`; a long text is cut.
pub(super) fn shown(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 8);
    for (index, c) in text.chars().enumerate() {
        if index == MAX_SHOWN {
            let left = text.chars().count() - MAX_SHOWN;
            _ = write!(
                html,
                "… <span class=\"cut\">({} more characters)</span>",
                count(left as u64)
            );
            break;
        }
        push(&mut html, c);
    }
    html
}

/// Foreign text in a quoted attribute.
pub(super) fn attribute(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 8);
    text.chars().for_each(|c| push(&mut html, c));
    html
}

fn push(html: &mut String, c: char) {
    match c {
        '&' => html.push_str("&amp;"),
        '<' => html.push_str("&lt;"),
        '>' => html.push_str("&gt;"),
        '"' => html.push_str("&quot;"),
        '\'' => html.push_str("&#39;"),
        c if is_hidden(c) => _ = write!(html, "⟨U+{:04X}⟩", u32::from(c)),
        c => html.push(c),
    }
}

/// Whether a character shows nothing itself, and may change how others are shown.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A URL as a link, if it is one that a browser may open.
pub(super) fn link(url: &str) -> String {
    let is_web = url.starts_with("http://") || url.starts_with("https://");
    // One that was cut leads elsewhere.
    if !is_web || url.ends_with('…') || url.chars().any(is_hidden) {
        return format!("<bdi>{}</bdi>", shown(url));
    }
    // The page as a whole sends no Referer, and opens no windows.
    format!("<a href=\"{}\">{}</a>", attribute(url), shown(url))
}

/// A whole number, as in `12,480`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun, as in `1 URL` and `2 URLs`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// A length in bytes, as in `640 B` and `1.24 MB`.
pub(super) fn bytes(length: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = length as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{length} B"),
        _ => format!("{} {}", three_digits(value), UNITS[unit]),
    }
}

/// A rate: `210/s`, `41.8/s`, `2.00/s`, below one in ten seconds `3.0/min`.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        0.1.. => format!("{}/s", three_digits(per_second)),
        _ => format!("{:.1}/min", per_second * 60.0),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A latency: `640 ms`, `5,012 ms`, from 10 s `12.3 s`.
pub(super) fn latency(millis: u64) -> String {
    match millis {
        ..10_000 => format!("{} ms", count(millis)),
        _ => format!("{:.1} s", millis as f64 / 1000.0),
    }
}

/// A duration: `45s`, `2m 30s`.
pub(super) fn duration(millis: u64) -> String {
    Rounded(Duration::from_millis(millis)).to_string()
}

/// A share: `0 %`, `<1 %`, `41 %`.
pub(super) fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / (whole as f64).max(1.0);
    match percent {
        0.0 => "0 %".to_owned(),
        ..1.0 => "<1 %".to_owned(),
        99.0..100.0 => ">99 %".to_owned(),
        _ => format!("{percent:.0} %"),
    }
}

/// A time of day with its date, as in `2026-11-16 18:39:02 UTC`, and in the form of `<time>`.
pub(super) fn instant(at: WallTime) -> Option<(String, String)> {
    let millis = u64::try_from(at.as_unix_millis()).ok()?;
    let since_epoch = Duration::from_millis(millis);
    // Later than this is no time at all, and has five digits for its year.
    if since_epoch > Duration::from_secs(250_000_000_000) {
        return None;
    }
    let at = std::time::UNIX_EPOCH + since_epoch;
    let machine = humantime::format_rfc3339_seconds(at).to_string();
    let person = machine.replace('T', " ").replace('Z', " UTC");
    Some((person, machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_and_made_visible() {
        assert_eq!(
            shown("<b a=\"'\">&\u{202e}\u{0}\u{200b}é"),
            "&lt;b a=&quot;&#39;&quot;&gt;&amp;⟨U+202E⟩⟨U+0000⟩⟨U+200B⟩é"
        );
        let long = shown(&"x".repeat(10_000));
        assert!(long.ends_with("(9,700 more characters)</span>"), "{long}");
    }

    #[test]
    fn only_whole_web_addresses_become_links() {
        assert_eq!(
            link("http://a.example/?a&b"),
            "<a href=\"http://a.example/?a&amp;b\">http://a.example/?a&amp;b</a>"
        );
        for other in [
            "javascript:alert(1)",
            "http://a.example/\u{202e}",
            "http://a.example/…",
            "",
        ] {
            assert!(link(other).starts_with("<bdi>"), "{other}");
        }
    }

    #[test]
    fn numbers_have_the_forms_of_the_console() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "URL"), "1 URL");
        assert_eq!(counted(0, "URL"), "0 URLs");
        assert_eq!(
            [bytes(999), bytes(1000), bytes(12_345_678)],
            ["999 B", "1.00 kB", "12.3 MB"]
        );
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(
            [rate(210.4), rate(41.75), rate(2.0), rate(0.05)],
            ["210/s", "41.8/s", "2.00/s", "3.0/min"]
        );
        assert_eq!(
            [latency(640), latency(5012), latency(12_345)],
            ["640 ms", "5,012 ms", "12.3 s"]
        );
        assert_eq!(
            [
                share(0, 0),
                share(1, 1000),
                share(41, 100),
                share(999, 1000),
                share(5, 5)
            ],
            ["0 %", "<1 %", "41 %", ">99 %", "100 %"]
        );
    }

    #[test]
    fn instants_are_in_utc() {
        let at = WallTime::from_unix_millis(1_794_000_000_000);
        let (person, machine) = instant(at).unwrap();
        assert_eq!(
            (person.as_str(), machine.as_str()),
            ("2026-11-06 21:20:00 UTC", "2026-11-06T21:20:00Z")
        );
        assert_eq!(instant(WallTime::from_unix_millis(-1)), None);
        assert_eq!(instant(WallTime::from_unix_millis(i64::MAX)), None);
    }
}
