//! A view of the demo as text: for a terminal as wide as it is, or as plain lines.

use std::time::Duration;

use app::demo::{Badge, DemoEvent, DemoView, JobView, ServerView, UpstreamView, WaitReason};
use policy::breaker::BreakerState;
use policy::hint::Source;

use crate::output::Canvas;

/// A view for a terminal: lines fit its width, and there are fewer lines than rows.
pub(super) fn frame(view: &DemoView, canvas: Canvas) -> String {
    // A command that is cut off cannot be copied.
    let fits = |line: &Line| !line.text.starts_with("or ") || line.width() <= canvas.columns;
    let mut lines: Vec<Line> = head(view).into_iter().filter(fits).collect();
    lines.extend(table(view, canvas.columns >= WIDE));
    lines.extend(script_lines(view));
    let left = canvas.rows.saturating_sub(lines.len() + 3).min(MAX_EVENTS);
    if left > 0 {
        lines.push(Line::plain(""));
        let skipped = view.events.len().saturating_sub(left);
        lines.extend(event_lines(&view.events[skipped..]));
    }
    lines.truncate(canvas.rows.saturating_sub(1));
    lines.iter().map(|line| line.drawn(canvas)).collect()
}

/// At this width there is room to describe each upstream.
const WIDE: usize = 110;

/// More events are hard to follow.
const MAX_EVENTS: usize = 10;

/// A view for a file: addresses at first, later the events since `last`.
pub(super) fn block(view: &DemoView, last: Duration) -> String {
    let mut lines = match last {
        // Nothing has been sent yet.
        Duration::ZERO => head(view),
        _ => vec![Line::plain(format!("after {}", seconds(view.elapsed)))],
    };
    if !last.is_zero() {
        lines.extend(table(view, true));
        lines.extend(script_lines(view));
        let is_new = |event: &&DemoEvent| event.at > last;
        let new: Vec<DemoEvent> = view.events.iter().filter(is_new).cloned().collect();
        lines.push(Line::plain(""));
        lines.extend(event_lines(&new));
    }
    lines.push(Line::plain(""));
    lines.iter().map(|line| line.text.clone() + "\n").collect()
}

/// A line and its colour.
struct Line {
    text: String,
    look: Look,
}

#[derive(Clone, Copy)]
enum Look {
    Plain,
    Bold,
    Faint,
    /// Held or paused.
    Yellow,
    /// Open, isolated or disabled.
    Red,
}

impl Line {
    fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Look::Plain)
    }

    fn new(text: impl Into<String>, look: Look) -> Self {
        let text = text.into().trim_end().to_owned();
        Self { text, look }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }

    fn drawn(&self, canvas: Canvas) -> String {
        let text = cut(&self.text, canvas.columns);
        let code = match self.look {
            _ if !canvas.has_colour => None,
            Look::Plain => None,
            Look::Bold => Some(1),
            Look::Faint => Some(2),
            Look::Yellow => Some(33),
            Look::Red => Some(31),
        };
        match code {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m\n"),
            None => format!("{text}\n"),
        }
    }
}

/// A terminal wraps longer lines, and wrapped lines cannot be drawn over.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept = text.chars().take(columns.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn head(view: &DemoView) -> Vec<Line> {
    let DemoView {
        gateway,
        console,
        admin,
        ..
    } = view;
    let first = view
        .upstreams
        .first()
        .map_or("", |upstream_view| upstream_view.name);
    let title = format!(
        "tidegate demo, {}: no limit is configured, clients send as fast as possible",
        seconds(view.elapsed)
    );
    vec![
        Line::new(title, Look::Bold),
        Line::plain(format!("console  {console}")),
        Line::plain(format!("gateway  http://{gateway}")),
        Line::plain(format!("try  curl -i http://{gateway}/{first}/hello")),
        Line::plain(format!(
            "or   curl -H \"Authorization: Bearer $(cat {})\" http://{admin}/api/v1/gates",
            view.token.display()
        )),
    ]
}

fn table(view: &DemoView, is_wide: bool) -> Vec<Line> {
    let about = if is_wide { "about" } else { "" };
    let head = row(
        ["upstream", "capacity", "learned", "accepted", "refused"],
        &format!("breaker  waiting  {about}"),
    );
    let mut lines = vec![Line::plain(""), Line::new(head, Look::Bold)];
    for upstream_view in &view.upstreams {
        lines.extend(upstream(upstream_view, is_wide));
    }
    lines
}

/// What the script of the demo does: its step, the operations and the job.
fn script_lines(view: &DemoView) -> Vec<Line> {
    let tour = &view.tour;
    let step = format!("step {} of {}: {}", tour.step, tour.of, tour.title);
    let counts = &view.operations;
    let operations = [
        (counts.completed, "delivered"),
        (counts.available + counts.running, "being sent"),
        (counts.retryable, "to be sent again"),
        (counts.failed, "failed"),
        (counts.conflict, "in conflict"),
        (counts.cancelled, "cancelled"),
    ];
    let operations = operations.into_iter().filter(|(count, _)| *count > 0);
    let operations: Vec<String> = operations
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    let operations = match operations.is_empty() {
        true => "none yet".to_owned(),
        false => operations.join(", "),
    };
    let has_decision = counts.failed + counts.conflict > 0;
    vec![
        Line::plain(""),
        Line::new(step, Look::Bold),
        Line::new(
            format!("operations  {operations}"),
            if has_decision {
                Look::Yellow
            } else {
                Look::Plain
            },
        ),
        job_line(view.job.as_ref()),
    ]
}

fn job_line(job: Option<&JobView>) -> Line {
    let Some(job) = job else {
        return Line::plain("job         none yet");
    };
    let progress = job.progress.unwrap_or_default();
    let mut text = match &job.end {
        Some(end) => format!("job         {end}"),
        None => {
            let stage = job.stage.as_deref().unwrap_or("queued");
            format!("job         {progress:.0} %, {stage}")
        }
    };
    if job.refused == 0 {
        return Line::plain(text);
    }
    let next = job.next_check.unwrap_or_default();
    text.push_str(&format!(
        "; status checks refused: {}, next in {}",
        job.refused,
        policy::duration::Rounded(next)
    ));
    Line::new(text, Look::Yellow)
}

/// Columns wide enough for everything in the demo, and the rest as it is.
fn row([name, limit, learned, answered, refused]: [&str; 5], rest: &str) -> String {
    format!("{name:<9}{limit:<18}{learned:>8}{answered:>10}{refused:>9}  {rest}")
}

fn upstream(upstream_view: &UpstreamView, is_wide: bool) -> Vec<Line> {
    let is_pool = upstream_view.servers.len() > 1;
    let first = upstream_view.servers.first().filter(|_| !is_pool);
    let breaker = first.map_or("", |server| state(server.breaker));
    let about = if is_wide { upstream_view.about } else { "" };
    let waiting = upstream_view.waiting;
    let text = row(
        [
            upstream_view.name,
            &upstream_view.limit,
            &per_second(upstream_view.learned),
            &per_second(upstream_view.answered),
            &percent(upstream_view.refused_ratio()),
        ],
        &format!("{breaker:<9}{waiting:>7}  {about}"),
    );
    let mut lines = vec![Line::new(text, first.map_or(Look::Plain, look))];
    let wait_reason = match upstream_view.waiting {
        0 => "no caller waits".to_owned(),
        _ if is_pool => "waiting for the first endpoint that may send".to_owned(),
        _ => format!("waiting for {}", wait_reason(upstream_view.wait_reason)),
    };
    if is_pool {
        lines.push(Line::new(format!("         {wait_reason}"), Look::Faint));
        lines.extend(upstream_view.servers.iter().map(server));
    } else {
        let text = format!("         {wait_reason}; {}", upstream_view.why);
        lines.push(Line::new(text, Look::Faint));
    }
    lines
}

fn server(server: &ServerView) -> Line {
    let rest = match server.badge {
        Some(Badge::Disabled) => "[disabled] until a person enables it".to_owned(),
        Some(Badge::Paused { until, errors }) => {
            format!("[paused] until {}, error {errors} in a row", seconds(until))
        }
        None if server.wait_reason == WaitReason::Pace => String::new(),
        None => wait_reason(server.wait_reason),
    };
    let text = row(
        [
            &format!("  {}", server.name),
            &server.limit,
            &per_second(server.learned),
            "",
            &percent(server.refused_ratio()),
        ],
        &format!("{:<9}{rest}", state(server.breaker)),
    );
    Line::new(text, look(server))
}

fn look(server: &ServerView) -> Look {
    match (server.breaker, server.badge, server.wait_reason) {
        (BreakerState::Open | BreakerState::Isolated, ..) | (_, Some(Badge::Disabled), _) => {
            Look::Red
        }
        (BreakerState::HalfOpen, ..) | (_, Some(Badge::Paused { .. }), _) => Look::Yellow,
        (BreakerState::Closed, None, WaitReason::Hold { .. }) => Look::Yellow,
        (BreakerState::Closed, None, _) => Look::Plain,
    }
}

fn wait_reason(wait_reason: WaitReason) -> String {
    match wait_reason {
        WaitReason::Pace => "their turn at the learned rate".to_owned(),
        WaitReason::Hold { until, source } => {
            let until = seconds(until);
            match source {
                Source::Assumed => format!("the end of a hold at {until}, after a refusal"),
                Source::Counted => format!("the next window at {until}, as counted before"),
                Source::RetryAfter => format!("the end of a hold at {until}, by Retry-After"),
                other => format!("the end of a hold at {until}, by {}", other.as_str()),
            }
        }
        WaitReason::Breaker { until: Some(until) } => {
            format!("the next probe of the open breaker at {}", seconds(until))
        }
        WaitReason::Breaker { until: None } => "a person: the gate is isolated".to_owned(),
        WaitReason::Probes => "the probes of the half-open breaker".to_owned(),
    }
}

fn event_lines(events: &[DemoEvent]) -> Vec<Line> {
    let lines = events.iter().map(|DemoEvent { at, who, what }| {
        let at = seconds(*at);
        Line::plain(format!("{at:>7}  {who}: {what}"))
    });
    lines.collect()
}

fn state(breaker: BreakerState) -> &'static str {
    match breaker {
        BreakerState::Closed => "closed",
        BreakerState::Open => "open",
        BreakerState::HalfOpen => "half open",
        BreakerState::Isolated => "isolated",
    }
}

pub(super) fn seconds(at: Duration) -> String {
    format!("{:.1}s", at.as_secs_f64())
}

pub(super) fn per_second(rate: f64) -> String {
    format!("{rate:.1}/s")
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests;
