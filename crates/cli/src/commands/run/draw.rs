//! The picture of a run on a terminal.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use app::run::{ItemResult, LiveOutput, RunEvent, StopLevel};
use policy::duration::Rounded;

use super::screen::{at, gap_reason};
use crate::output::{Canvas, escape};

/// What the picture shows.
#[derive(Debug)]
pub(super) struct View {
    began: Instant,
    attempts: u32,
    base: Duration,
    running: Vec<Running>,
    ended: VecDeque<EndedRow>,
    failures: VecDeque<FailureRow>,
    gap: Option<Gap>,
    done: u64,
    failed: u64,
    retries: u64,
    pub(super) stop: StopLevel,
}

#[derive(Debug)]
struct Running {
    number: u64,
    item: String,
    attempt: u32,
    since: Instant,
    output: Arc<LiveOutput>,
}

#[derive(Debug)]
struct EndedRow {
    item: String,
    class: &'static str,
    attempt: u32,
    elapsed: Duration,
    text: String,
}

#[derive(Debug)]
struct FailureRow {
    item: String,
    class: &'static str,
    text: String,
    at: Instant,
}

#[derive(Debug)]
struct Gap {
    until: Instant,
    failures: usize,
    site: Option<String>,
}

/// Rows of attempts that have ended, and of failures.
const MAX_ROWS: usize = 5;

impl View {
    pub(super) fn new(attempts: u32, base: Duration, now: Instant) -> Self {
        Self {
            began: now,
            attempts,
            base,
            running: Vec::new(),
            ended: VecDeque::new(),
            failures: VecDeque::new(),
            gap: None,
            done: 0,
            failed: 0,
            retries: 0,
            stop: StopLevel::Run,
        }
    }

    pub(super) fn event(&mut self, event: &RunEvent<'_>, now: Instant) {
        match event {
            RunEvent::Started {
                item,
                attempt,
                output,
            } => {
                self.gap = None;
                self.retries -= u64::from(*attempt > 1).min(self.retries);
                self.running.push(Running {
                    number: item.number,
                    item: short(&item.text),
                    attempt: *attempt,
                    since: now,
                    output: Arc::clone(output),
                });
            }
            RunEvent::Ended {
                item,
                attempt,
                class,
                text,
                elapsed,
                result,
                ..
            } => {
                self.running.retain(|row| row.number != item.number);
                match result {
                    ItemResult::Done => self.done += 1,
                    ItemResult::Retry => self.retries += 1,
                    ItemResult::Failed(_) => self.failed += 1,
                }
                let (item, class) = (short(&item.text), class.as_str());
                if *result != ItemResult::Done {
                    push(
                        &mut self.failures,
                        FailureRow {
                            item: item.clone(),
                            class,
                            text: short(text),
                            at: now,
                        },
                    );
                }
                push(
                    &mut self.ended,
                    EndedRow {
                        item,
                        class,
                        attempt: *attempt,
                        elapsed: *elapsed,
                        text: short(text),
                    },
                );
            }
            RunEvent::Refused { item, why } => {
                self.failed += 1;
                push(
                    &mut self.failures,
                    FailureRow {
                        item: short(&item.text),
                        class: "refused",
                        text: short(why),
                        at: now,
                    },
                );
            }
            RunEvent::Waiting {
                wait,
                failures,
                site,
                ..
            } => {
                self.gap = Some(Gap {
                    until: now + *wait,
                    failures: *failures,
                    site: site.map(str::to_owned),
                });
            }
            RunEvent::GaveUp { .. } => self.gap = None,
        }
    }

    /// The picture: its lines fit the width, and there are fewer than the terminal has rows.
    pub(super) fn frame(&self, canvas: Canvas, now: Instant) -> String {
        let mut lines = vec![Line::new(self.title(now), Look::Bold)];
        lines.extend(folded(self.state(now), canvas.columns));
        lines.push(Line::plain(""));
        lines.extend(self.table(canvas.columns, now));
        if !self.failures.is_empty() {
            lines.push(Line::plain(""));
            lines.push(Line::new("recent failures", Look::Bold));
            for row in self.failures.iter().rev() {
                let age = Rounded(now.duration_since(row.at));
                let (item, class, text) = (&row.item, row.class, &row.text);
                let (item, rest) = match canvas.columns >= WIDE {
                    true => (cut(item, canvas.columns / 3), format!("{class}: {text}")),
                    false => (item.clone(), class.to_owned()),
                };
                lines.push(Line::new(
                    match canvas.columns >= WIDE {
                        true => format!("{age} ago  {item}  {rest}"),
                        false => format!("{age} ago  {rest}  {item}"),
                    },
                    Look::Plain,
                ));
            }
        }
        lines.truncate(canvas.rows.saturating_sub(1));
        lines.iter().map(|line| line.drawn(canvas)).collect()
    }

    fn title(&self, now: Instant) -> String {
        let Self { done, failed, .. } = self;
        let retries = match self.retries {
            0 => String::new(),
            retries => format!(", {retries} to try again"),
        };
        let elapsed = Rounded(now.duration_since(self.began));
        format!("{done} done, {failed} failed{retries}, {elapsed}")
    }

    fn state(&self, now: Instant) -> String {
        let in_flight = self.running.len();
        match (&self.gap, self.stop) {
            (_, StopLevel::Finish | StopLevel::Quit) => {
                format!("finishing {in_flight} in flight; Ctrl-C again quits at once")
            }
            (Some(gap), StopLevel::Run) => format!(
                "next start{} in {}: base {}, {}",
                at(gap.site.as_deref()),
                Rounded(gap.until.duration_since(now)),
                Rounded(self.base),
                gap_reason(gap.failures)
            ),
            (None, StopLevel::Run) => format!("{in_flight} in flight"),
        }
    }

    fn table(&self, columns: usize, now: Instant) -> Vec<Line> {
        let widths = Widths::new(columns);
        let head = widths.row("item", "class", "tries", "elapsed", "last output");
        let mut lines = vec![Line::new(head, Look::Bold)];
        let tries = |attempt: u32| format!("{attempt}/{}", self.attempts);
        for row in &self.running {
            let elapsed = Rounded(now.duration_since(row.since)).to_string();
            let output = row.output.last_line();
            let text = widths.row(&row.item, "running", &tries(row.attempt), &elapsed, &output);
            lines.push(Line::plain(text));
        }
        for row in self.ended.iter().rev() {
            let elapsed = Rounded(row.elapsed).to_string();
            let text = widths.row(
                &row.item,
                row.class,
                &tries(row.attempt),
                &elapsed,
                &row.text,
            );
            lines.push(Line::new(text, Look::Faint));
        }
        lines
    }
}

/// A text in two lines if it is too long for one: the reason of a gap goes below it.
fn folded(text: String, columns: usize) -> Vec<Line> {
    match text.split_once(": ") {
        Some((first, second)) if text.chars().count() > columns => {
            vec![Line::plain(first), Line::plain(second)]
        }
        _ => vec![Line::plain(text)],
    }
}

fn push<T>(rows: &mut VecDeque<T>, row: T) {
    if rows.len() >= MAX_ROWS {
        rows.pop_front();
    }
    rows.push_back(row);
}

/// As much as any terminal shows of a line.
fn short(text: &str) -> String {
    text.chars().take(400).collect()
}

/// The columns of the table. A narrow terminal has no room for the last output.
struct Widths {
    item: usize,
    output: Option<usize>,
}

/// Class and elapsed time with the blanks before them.
const FIXED: usize = (2 + 9) + (2 + 7);
/// Attempts, with blanks.
const TRIES: usize = 2 + 5;
/// Below this there is no room for what a program prints.
const WIDE: usize = 60;

impl Widths {
    fn new(columns: usize) -> Self {
        let rest = columns.saturating_sub(FIXED);
        match columns >= WIDE {
            true => {
                let rest = rest - TRIES - 2;
                Self {
                    item: rest / 2,
                    output: Some(rest - rest / 2),
                }
            }
            false => Self {
                item: rest.max(8),
                output: None,
            },
        }
    }

    fn row(&self, item: &str, class: &str, tries: &str, elapsed: &str, output: &str) -> String {
        let item = padded(item, self.item);
        match self.output {
            Some(width) => {
                let output = cut(&escape(output), width);
                format!("{item}  {class:<9}  {tries:>5}  {elapsed:>7}  {output}")
            }
            None => format!("{item}  {class:<9}  {elapsed:>7}"),
        }
    }
}

fn padded(text: &str, columns: usize) -> String {
    let text = cut(&escape(text), columns);
    let blanks = columns.saturating_sub(text.chars().map(width).sum());
    text + &" ".repeat(blanks)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Plain,
    Bold,
    Faint,
}

struct Line {
    text: String,
    look: Look,
}

impl Line {
    fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Look::Plain)
    }

    fn new(text: impl Into<String>, look: Look) -> Self {
        let text = text.into();
        Self { text, look }
    }

    fn drawn(&self, canvas: Canvas) -> String {
        let text = cut(&escape(self.text.trim_end()), canvas.columns);
        let code = match self.look {
            _ if !canvas.has_colour => None,
            Look::Plain => None,
            Look::Bold => Some(1),
            Look::Faint => Some(2),
        };
        match code {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m\n"),
            None => format!("{text}\n"),
        }
    }
}

/// A terminal wraps longer lines, and wrapped lines cannot be drawn over.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let kept = text.chars().take_while(|c| {
        let fits = width(*c) <= left;
        left = left.saturating_sub(width(*c));
        fits
    });
    let mut kept: String = kept.collect();
    kept.push('…');
    kept
}

/// The columns that a character takes on a terminal.
fn width(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200b..=0x200d | 0x20d0..=0x20f0 | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 => 2,
        0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use app::run::{FailReason, Item};
    use insta::assert_snapshot;
    use policy::rules::Class;
    use policy::time::Timestamp;

    use super::*;

    fn item(number: u64, text: &str) -> Item {
        Item {
            number,
            occurrence: 1,
            attempts: 0,
            text: text.into(),
        }
    }

    fn ended<'e>(
        item: &'e Item,
        class: Class,
        text: &'e str,
        seconds: u64,
        result: ItemResult,
    ) -> RunEvent<'e> {
        RunEvent::Ended {
            item,
            attempt: 1,
            exit: None,
            class,
            rule: None,
            text,
            elapsed: Duration::from_secs(seconds),
            result,
            failures: 1,
            gap: Duration::from_secs(60),
            site: None,
        }
    }

    /// A run that has had a success, a retry and a failure, and has one item in flight.
    fn view(began: Instant) -> View {
        let mut view = View::new(3, Duration::from_secs(30), began);
        let second = |second| began + Duration::from_secs(second);
        let (one, two) = (
            item(1, "https://video.example/one"),
            item(2, "https://video.example/two"),
        );
        let three = item(
            3,
            "https://video.example/a-very-long-name-that-does-not-fit-here",
        );
        view.event(
            &ended(&one, Class::Success, "", 12, ItemResult::Done),
            second(12),
        );
        let text = "ERROR: unable to download: HTTP Error 429: Too Many Requests";
        view.event(
            &ended(&two, Class::Retryable, text, 2, ItemResult::Retry),
            second(44),
        );
        let rejected = ItemResult::Failed(FailReason::Rejected);
        let text = "ERROR: \x1b Private video";
        view.event(
            &ended(&three, Class::Terminal, text, 1, rejected),
            second(105),
        );
        let output = Arc::new(LiveOutput::default());
        let four = item(4, "日本語の動画");
        let started = RunEvent::Started {
            item: &four,
            attempt: 1,
            output,
        };
        view.event(&started, second(165));
        view
    }

    fn frame(view: &View, columns: usize, now: Instant) -> String {
        let canvas = Canvas {
            columns,
            rows: 24,
            has_colour: false,
        };
        let frame = view.frame(canvas, now);
        for line in frame.lines() {
            assert!(line.chars().map(width).sum::<usize>() <= columns, "{line}");
            assert!(!line.contains(char::is_control), "{line:?}");
        }
        frame
    }

    #[test]
    fn frame_fits_eighty_columns() {
        let began = Instant::now();
        let view = view(began);
        assert_snapshot!(frame(&view, 80, began + Duration::from_secs(170)), @r"
        1 done, 1 failed, 1 to try again, 2m 50s
        1 in flight

        item                       class      tries  elapsed  last output
        日本語の動画               running      1/3       5s
        https://video.example/a-…  terminal     1/3       1s  ERROR: \u{1b} Private vid…
        https://video.example/two  retryable    1/3       2s  ERROR: unable to download…
        https://video.example/one  success      1/3      12s

        recent failures
        1m 5s ago  https://video.example/a-v…  terminal: ERROR: \u{1b} Private video
        2m 6s ago  https://video.example/two  retryable: ERROR: unable to download: HTT…
        ");
    }

    #[test]
    fn frame_fits_forty_columns() {
        let began = Instant::now();
        let mut view = view(began);
        let waiting = RunEvent::Waiting {
            until: Timestamp::ZERO,
            wait: Duration::from_secs(60),
            failures: 1,
            gap: Duration::from_secs(60),
            site: None,
        };
        view.event(&waiting, began + Duration::from_secs(165));
        assert_snapshot!(frame(&view, 40, began + Duration::from_secs(180)), @"
        1 done, 1 failed, 1 to try again, 3m
        next start in 45s
        base 30s, 1 recent failure

        item                  class      elapsed
        日本語の動画          running        15s
        https://video.examp…  terminal        1s
        https://video.examp…  retryable       2s
        https://video.examp…  success        12s

        recent failures
        1m 15s ago  terminal  https://video.exa…
        2m 16s ago  retryable  https://video.ex…
        ");
    }

    #[test]
    fn frame_has_fewer_lines_than_rows() {
        let began = Instant::now();
        let canvas = Canvas {
            columns: 20,
            rows: 5,
            has_colour: true,
        };
        let frame = view(began).frame(canvas, began);
        assert_eq!(frame.lines().count(), 4);
    }
}
