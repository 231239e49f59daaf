//! Reading the query of a call: every parameter is known and right, or the call is refused.

use std::time::Duration;

use super::problem::{Kind, Refused};

/// Calls `take` with every parameter. It returns `None` for one that is not known, and what is
/// expected for a wrong value.
pub(super) fn read(
    query: Option<&str>,
    mut take: impl FnMut(&str, &str) -> Option<Result<(), String>>,
) -> Result<(), Refused> {
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let value = value.trim();
        match take(&name, value) {
            Some(Ok(())) => {}
            Some(Err(expected)) => {
                let value = shortened(value);
                let detail = format!("`{name}` is `{value}`, expected {expected}");
                return Err(Refused::new(Kind::BadRequest, detail));
            }
            None => {
                let detail = format!("there is no parameter `{}`", shortened(&name));
                return Err(Refused::new(Kind::BadRequest, detail));
            }
        }
    }
    Ok(())
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
    found.ok_or_else(|| {
        let words: Vec<String> = all
            .iter()
            .map(|word| format!("`{}`", name(*word)))
            .collect();
        format!("one of {}", words.join(", "))
    })
}

/// A whole number.
pub(super) fn number(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok();
    number
        .filter(|number| is_plain && (min..=max).contains(number))
        .ok_or_else(|| match max {
            usize::MAX => format!("a whole number from {min}"),
            max => format!("a whole number from {min} to {max}"),
        })
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
    read(query, |name, value| {
        (name == "window").then(|| time(value, MIN_WINDOW, MAX_WINDOW).map(|given| window = given))
    })?;
    Ok(window)
}

const DEFAULT_WINDOW: Duration = Duration::from_secs(300);
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// As much as is recorded.
const MAX_WINDOW: Duration = Duration::from_secs(900);
