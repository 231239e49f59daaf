//! How far a fetch is: a bar for every stage on a terminal, else a line from time to time.

use std::time::{Duration, Instant};

use app::fetch::{FetchCounts, FetchProgress, HostWait, Stage, WaitReason};
use policy::duration::Rounded;
use policy::gate::Reason;

use crate::output::{Output, StatusLines, escape, fit, wrap};

/// Where progress is shown.
#[derive(Debug)]
pub(super) enum Screen {
    /// In lines of a terminal, redrawn in place.
    Live {
        lines: StatusLines,
        is_stopping: bool,
    },
    /// A line from time to time.
    Plain { started: Instant, last: Instant },
    /// Nowhere.
    Hidden,
}

impl Screen {
    /// `is_json`: stderr has lines of JSON.
    pub(super) fn new(is_json: bool, output: &Output) -> Self {
        if is_json || output.is_quiet() {
            return Self::Hidden;
        }
        let now = Instant::now();
        match output.status_lines() {
            Some(lines) => Self::Live {
                lines,
                is_stopping: false,
            },
            None => Self::Plain {
                started: now,
                last: now,
            },
        }
    }

    /// The lines, for a log that is written above them.
    pub(super) fn lines(&self) -> Option<StatusLines> {
        match self {
            Self::Live { lines, .. } => Some(lines.clone()),
            Self::Plain { .. } | Self::Hidden => None,
        }
    }

    /// Shows how far it is.
    pub(super) fn update(&mut self, progress: FetchProgress, output: &Output) {
        match self {
            Self::Live { lines, is_stopping } => {
                lines.draw(&picture(&progress, *is_stopping, lines.columns()));
            }
            Self::Plain { started, last } => {
                let now = Instant::now();
                if now.duration_since(*last) >= LINE_EVERY {
                    *last = now;
                    let elapsed = Rounded(now.duration_since(*started)).to_string();
                    output.notice(&format!("{elapsed:>7}  {}", line(&progress)));
                }
            }
            Self::Hidden => {}
        }
    }

    /// Shows that nothing further is started.
    pub(super) fn stopping(&mut self, output: &Output) {
        match self {
            Self::Live { is_stopping, .. } => *is_stopping = true,
            Self::Plain { .. } => output.notice(STOPPING),
            Self::Hidden => {}
        }
    }

    /// Removes it.
    pub(super) fn clear(&mut self) {
        if let Self::Live { lines, .. } = self {
            lines.draw("");
        }
    }
}

const STOPPING: &str = "finishing what is in flight; a second signal quits at once";

/// A log with more lines than that is hard to read.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// One line for a pipe.
fn line(progress: &FetchProgress) -> String {
    let FetchCounts {
        known,
        done,
        failed,
        ..
    } = progress.counts;
    let mut parts = vec![format!("{} of {} URLs", number(done), number(known))];
    if failed > 0 {
        parts.push(format!("{} failed", number(failed)));
    }
    parts.push(pace(progress));
    let line = parts.join(", ");
    match &progress.waiting {
        Some(waiting) => format!("{line}; {}", wait(waiting)),
        None => line,
    }
}

/// Lines for a terminal.
fn picture(progress: &FetchProgress, is_stopping: bool, columns: usize) -> String {
    let mut picture: String = Stage::ALL
        .iter()
        .map(|stage| fit(&bar(*stage, progress, columns), columns))
        .collect();
    picture.push_str(&fit(&pace(progress), columns));
    let waiting = progress.waiting.as_ref().map(wait);
    let stopping = is_stopping.then(|| STOPPING.to_owned());
    for text in waiting.into_iter().chain(stopping) {
        let lines = wrap(&text, columns);
        picture.extend(lines.iter().map(|line| fit(line, columns)));
    }
    picture
}

/// A stage: its name, how far it is, and what it has counted.
fn bar(stage: Stage, progress: &FetchProgress, columns: usize) -> String {
    let counts = &progress.counts;
    let share = match stage < progress.stage {
        true => 1.0,
        false => share(stage, counts),
    };
    let width = (columns / 4).clamp(6, 24);
    let filled = filled(share, width);
    let (done, left) = ("#".repeat(filled), "-".repeat(width - filled));
    let name = stage.as_str();
    let text = text(stage, counts);
    format!("{name:<10} [{done}{left}] {text}")
        .trim_end()
        .to_owned()
}

/// The share of a stage's work that is done, of the work that is known.
fn share(stage: Stage, counts: &FetchCounts) -> f64 {
    let done = match stage {
        // What was taken from the queue; a page may link to more.
        Stage::Discovery => counts.known.saturating_sub(counts.queued),
        Stage::Extraction | Stage::Processing | Stage::Output => counts.done,
    };
    match counts.known {
        0 => 0.0,
        known => done as f64 / known as f64,
    }
}

fn text(stage: Stage, counts: &FetchCounts) -> String {
    let with = |mut parts: Vec<String>, rest: &[(u64, &str)]| {
        let rest = rest.iter().filter(|(count, _)| *count > 0);
        parts.extend(rest.map(|(count, word)| format!("{} {word}", number(*count))));
        parts.join(", ")
    };
    match stage {
        Stage::Discovery => with(
            vec![format!("{} URLs", number(counts.known))],
            &[(counts.queued, "queued")],
        ),
        Stage::Extraction => with(
            vec![format!("{} sent", number(counts.sent))],
            &[
                (counts.in_flight, "in flight"),
                (counts.retrying, "to be sent again"),
            ],
        ),
        Stage::Processing => with(
            vec![size(counts.bytes)],
            &[(counts.not_modified, "unchanged")],
        ),
        Stage::Output => with(
            vec![format!("{} done", number(counts.done))],
            &[(counts.failed, "failed")],
        ),
    }
}

/// URLs per second, and how long the rest takes.
fn pace(progress: &FetchProgress) -> String {
    let rate = progress.rate_per_second;
    let rate = match rate < 10.0 {
        true => format!("{rate:.1}/s"),
        false => format!("{rate:.0}/s"),
    };
    match progress.eta {
        Some(eta) if !eta.is_zero() => format!("{rate}, about {} left", Rounded(eta)),
        _ => rate,
    }
}

/// Which host is waited for, and why.
fn wait(waiting: &HostWait) -> String {
    let key = escape(&waiting.key);
    let length = waiting.wait.filter(|wait| !wait.is_zero());
    let length = length.map_or(String::new(), |wait| format!(" {}", Rounded(wait)));
    format!("{key}: waiting{length}, {}", words(waiting.reason))
}

fn words(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::CrawlDelay => "its robots.txt asks for a delay (Crawl-delay)",
        WaitReason::Retry => "to be sent again after failures",
        WaitReason::Gate(reason) => gate_words(reason),
    }
}

fn gate_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Rate => "at the rate that it takes",
        Reason::Hold => "the server asked for a delay (Retry-After)",
        Reason::BreakerOpen => "its breaker is open after failures",
        Reason::InFlight => "the maximum number of requests is in flight",
        Reason::QueueFull => "the line of its gate is full",
        Reason::Deadline => "it could not leave in time",
        Reason::TooManyGates => "there are too many hosts at once",
        Reason::RetryBudget => "too many of its requests are retries",
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the number is between 0 and the width of a bar"
)]
fn filled(share: f64, width: usize) -> usize {
    (share.clamp(0.0, 1.0) * width as f64) as usize
}

/// A number with commas.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the unit that fits.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    // What would be shown as 1024.0 is 1.0 of the next unit.
    while value >= 1023.95
        && let Some(next) = units.next()
    {
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> FetchProgress {
        FetchProgress {
            stage: Stage::Extraction,
            percent: 25.0,
            counts: FetchCounts {
                known: 4_310,
                queued: 3_150,
                in_flight: 24,
                retrying: 3,
                done: 1_133,
                failed: 12,
                denied: 2,
                not_modified: 40,
                sent: 1_190,
                bytes: 36_912_345,
            },
            rate_per_second: 118.4,
            eta: Some(Duration::from_secs(27)),
            waiting: Some(HostWait {
                key: "api.example.com".to_owned(),
                reason: WaitReason::Gate(Reason::Hold),
                wait: Some(Duration::from_millis(11_200)),
                urls: 100,
            }),
        }
    }

    #[test]
    fn draws_a_bar_for_every_stage() {
        insta::assert_snapshot!(picture(&progress(), false, 80), @"
        discovery  [####################] 4,310 URLs, 3,150 queued
        extraction [#####---------------] 1,190 sent, 24 in flight, 3 to be sent again
        processing [#####---------------] 35.2 MiB, 40 unchanged
        output     [#####---------------] 1,133 done, 12 failed
        118/s, about 27s left
        api.example.com: waiting 12s, the server asked for a delay (Retry-After)
        ");
        insta::assert_snapshot!(picture(&progress(), true, 40), @"
        discovery  [##########] 4,310 URLs, 3,…
        extraction [##--------] 1,190 sent, 24…
        processing [##--------] 35.2 MiB, 40 u…
        output     [##--------] 1,133 done, 12…
        118/s, about 27s left
        api.example.com: waiting 12s, the
        server asked for a delay (Retry-After)
        finishing what is in flight; a second
        signal quits at once
        ");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 1..100 {
            let picture = picture(&progress(), true, columns);
            let widest = picture.lines().map(|line| line.chars().count()).max();
            assert!(widest < Some(columns.max(2)), "{columns}: {picture}");
        }
    }

    #[test]
    fn says_why_it_waits() {
        let reasons = [
            Reason::Rate,
            Reason::Hold,
            Reason::BreakerOpen,
            Reason::InFlight,
            Reason::QueueFull,
            Reason::Deadline,
            Reason::TooManyGates,
            Reason::RetryBudget,
        ];
        let mut waiting = progress().waiting.unwrap();
        let mut lines = Vec::new();
        for reason in reasons {
            waiting.reason = WaitReason::Gate(reason);
            lines.push(wait(&waiting));
        }
        for reason in [WaitReason::CrawlDelay, WaitReason::Retry] {
            waiting.reason = reason;
            lines.push(wait(&waiting));
        }
        waiting.wait = None;
        lines.push(wait(&waiting));
        insta::assert_snapshot!(lines.join("\n"), @"
        api.example.com: waiting 12s, at the rate that it takes
        api.example.com: waiting 12s, the server asked for a delay (Retry-After)
        api.example.com: waiting 12s, its breaker is open after failures
        api.example.com: waiting 12s, the maximum number of requests is in flight
        api.example.com: waiting 12s, the line of its gate is full
        api.example.com: waiting 12s, it could not leave in time
        api.example.com: waiting 12s, there are too many hosts at once
        api.example.com: waiting 12s, too many of its requests are retries
        api.example.com: waiting 12s, its robots.txt asks for a delay (Crawl-delay)
        api.example.com: waiting 12s, to be sent again after failures
        api.example.com: waiting, to be sent again after failures
        ");
    }

    #[test]
    fn a_line_for_a_pipe_has_the_same() {
        let mut progress = progress();
        let mut lines = vec![line(&progress)];
        progress.waiting = None;
        progress.counts.failed = 0;
        progress.rate_per_second = 2.25;
        progress.eta = None;
        lines.push(line(&progress));
        insta::assert_snapshot!(lines.join("\n"), @"
        1,133 of 4,310 URLs, 12 failed, 118/s, about 27s left; api.example.com: waiting 12s, the server asked for a delay (Retry-After)
        1,133 of 4,310 URLs, 2.2/s
        ");
    }

    #[test]
    fn numbers_and_sizes_are_short() {
        let numbers = [0, 999, 1_000, 123_456_789].map(number);
        assert_eq!(numbers, ["0", "999", "1,000", "123,456,789"]);
        let sizes = [0, 1_023, 1_024, 1_048_575, u64::MAX].map(size);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "16384.0 PiB"]
        );
    }
}
