//! Reading the query of a call: every parameter is known and right, or the call is refused.

use std::time::Duration;

use policy::setting;

use super::problem::{Kind, Refused};

/// Calls `take` with every parameter. It returns `None` for one that is not among `names`, and what is
/// expected for a wrong value.
pub(super) fn read(
    query: Option<&str>,
    names: &[&'static str],
    mut take: impl FnMut(&str, &str) -> Option<Result<(), String>>,
) -> Result<(), Refused> {
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let detail = match take(&name, &value) {
            Some(Ok(())) => continue,
            Some(Err(expected)) => {
                format!("`{name}` is `{}`, expected {expected}", shortened(&value))
            }
            None => {
                let (name, expected) = (shortened(&name), alternatives(names));
                format!("there is no parameter `{name}`, expected {expected}")
            }
        };
        return Err(Refused::new(Kind::BadRequest, detail));
    }
    Ok(())
}

/// Words in backticks, with `or` before the last.
fn alternatives(words: &[&'static str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => {
            format!("{} or `{last}`", quoted(first.iter().copied()))
        }
        words => quoted(words.iter().copied()),
    }
}

/// Words in backticks.
pub(super) fn quoted(words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// One of these words.
pub(super) fn word<T: Copy>(
    text: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, String> {
    let found = all.iter().copied().find(|word| name(*word) == text);
    found.ok_or_else(|| format!("one of {}", quoted(all.iter().copied().map(name))))
}

/// How many to list.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    setting::whole(text, 1, MAX_LISTED)
}

pub(super) const MAX_LISTED: usize = 1000;
pub(super) const DEFAULT_LISTED: usize = 100;

/// How many to leave out before the first.
pub(super) fn offset(text: &str) -> Result<usize, String> {
    setting::whole(text, 0, MAX_OFFSET)
}

/// More than a limiter has gates.
const MAX_OFFSET: usize = 1_000_000_000;

/// A text that is not empty.
pub(super) fn text(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("a name".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Where a page ends. Numbers rise with every insert, so a cursor is valid while others arrive.
pub(super) fn cursor(number: u64) -> String {
    format!("{number:x}")
}

pub(super) const CURSOR: &str = "`next_cursor` of the page before";

/// The number in a cursor.
pub(super) fn read_cursor(text: &str) -> Option<u64> {
    let number = u64::from_str_radix(text, 16).ok()?;
    (number > 0 && text.len() <= 15 && cursor(number) == text).then_some(number)
}

/// `true` or `false`.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "`true` or `false`".to_owned())
}

/// A time between two bounds.
pub(super) fn time(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let time = policy::duration::parse(text).ok();
    time.filter(|time| (min..=max).contains(time))
        .ok_or_else(|| {
            let shown = policy::duration::Exact;
            format!("a time from {} to {}", shown(min), shown(max))
        })
}

/// How far back a history reaches: the query of a call whose one parameter is `window`.
pub(super) fn window(query: Option<&str>) -> Result<Duration, Refused> {
    let mut window = DEFAULT_WINDOW;
    read(query, &["window"], |name, value| {
        (name == "window").then(|| time(value, MIN_WINDOW, MAX_WINDOW).map(|given| window = given))
    })?;
    Ok(window)
}

const DEFAULT_WINDOW: Duration = Duration::from_secs(300);
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// As much as is recorded.
const MAX_WINDOW: Duration = Duration::from_secs(900);
