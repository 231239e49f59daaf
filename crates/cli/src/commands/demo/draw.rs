//! A picture of the demo as text: for a terminal as wide as it is, or as plain lines.

use std::time::Duration;

use app::demo::{Badge, Because, Picture, Seen, SeenServer, Told};
use policy::breaker::BreakerState;
use policy::hint::Source;

use crate::output::Canvas;

/// A picture for a terminal: no line is wider, and there are fewer lines than rows.
pub(super) fn frame(picture: &Picture, canvas: Canvas) -> String {
    let mut lines = head(picture);
    lines.extend(table(picture));
    let left = canvas.rows.saturating_sub(lines.len() + 3).min(MOST_TOLD);
    if left > 0 {
        lines.push(Line::plain(""));
        let skipped = picture.story.len().saturating_sub(left);
        lines.extend(story(&picture.story[skipped..]));
    }
    lines.truncate(canvas.rows.saturating_sub(1));
    lines.iter().map(|line| line.drawn(canvas)).collect()
}

/// More would make the eye search.
const MOST_TOLD: usize = 10;

/// A picture for a file: addresses at first, later what is new since `last`.
pub(super) fn block(picture: &Picture, last: Duration) -> String {
    let mut lines = match last {
        Duration::ZERO => head(picture),
        _ => vec![Line::plain(format!("after {}", seconds(picture.elapsed)))],
    };
    // At the very first nobody has sent anything.
    if !last.is_zero() {
        lines.extend(table(picture));
        let is_new = |told: &&Told| told.at > last;
        let new: Vec<Told> = picture.story.iter().filter(is_new).cloned().collect();
        lines.extend(story(&new));
    }
    lines.push(Line::plain(""));
    lines.iter().map(|line| line.text.clone() + "\n").collect()
}

/// A line, and how it is to look.
struct Line {
    text: String,
    look: Look,
}

#[derive(Clone, Copy)]
enum Look {
    Plain,
    Bold,
    Faint,
    /// Something is held back.
    Yellow,
    /// Something does not work.
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

/// A longer line would be broken by the terminal, and could not be drawn over.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept = text.chars().take(columns.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn head(picture: &Picture) -> Vec<Line> {
    let Picture { gateway, admin, .. } = picture;
    let (first, clients) = (picture.upstreams.first(), "clients send as fast as they are answered");
    let first = first.map_or("", |seen| seen.name);
    vec![
        Line::new(
            format!(
                "tidegate demo, {}: {clients}, and no limit is configured",
                seconds(picture.elapsed)
            ),
            Look::Bold,
        ),
        Line::plain(format!("gateway    http://{gateway}    admin API http://{admin}")),
        Line::plain(format!("try        curl -i http://{gateway}/{first}/hello")),
        Line::plain(format!(
            "or         curl -H \"Authorization: Bearer $(cat {})\" http://{admin}/api/v1/gates",
            picture.token.display()
        )),
        Line::plain(""),
    ]
}

fn table(picture: &Picture) -> Vec<Line> {
    let mut lines = vec![Line::new(
        row([
            "upstream",
            "really takes",
            "learned",
            "answered",
            "refused",
            "breaker",
            "waiting",
            "and why",
        ]),
        Look::Bold,
    )];
    for seen in &picture.upstreams {
        lines.extend(upstream(seen));
    }
    lines
}

/// Columns whose widths fit everything that the demo has.
fn row(cells: [&str; 8]) -> String {
    let [name, truth, learned, answered, refused, breaker, waiting, why] = cells;
    format!(
        "{name:<9}{truth:<17}{learned:>9}{answered:>10}{refused:>9}  {breaker:<9}{waiting:>7}  {why}"
    )
}

fn upstream(seen: &Seen) -> Vec<Line> {
    let is_pool = seen.servers.len() > 1;
    let (breaker, why) = match seen.servers.as_slice() {
        [only] => (state(only.breaker), because(seen.because)),
        _ => ("", "whichever server may send first".to_owned()),
    };
    let (waiting, why) = match seen.waiting {
        0 => ("0".to_owned(), String::new()),
        waiting => (waiting.to_string(), why),
    };
    let text = row([
        seen.name,
        &seen.truth,
        &per_second(seen.learned),
        &per_second(seen.answered),
        &percent(seen.refused_ratio()),
        breaker,
        &waiting,
        &why,
    ]);
    let look = if is_pool { Look::Plain } else { look(&seen.servers[0]) };
    let mut lines = vec![Line::new(text, look)];
    if is_pool {
        lines.extend(seen.servers.iter().map(server));
        lines.push(Line::new(format!("         {}", seen.about), Look::Faint));
    } else {
        let text = format!("         {}; pace {}", seen.about, seen.why);
        lines.push(Line::new(text, Look::Faint));
    }
    lines
}

fn server(server: &SeenServer) -> Line {
    let why = match server.badge {
        Some(Badge::Disabled) => "[disabled] until a person enables it".to_owned(),
        Some(Badge::Paused { until, errors }) => {
            format!("[paused] until {}, error {errors} in a row", seconds(until))
        }
        None if server.because == Because::Pace => String::new(),
        None => because(server.because),
    };
    let name = format!("  {}", server.name);
    let text = row([
        &name,
        &server.truth,
        &per_second(server.learned),
        "",
        &percent(server.refused_ratio()),
        state(server.breaker),
        "",
        &why,
    ]);
    Line::new(text, look(server))
}

fn look(server: &SeenServer) -> Look {
    match (server.breaker, server.badge, server.because) {
        (BreakerState::Open | BreakerState::Isolated, ..) | (_, Some(Badge::Disabled), _) => {
            Look::Red
        }
        (BreakerState::HalfOpen, ..) | (_, Some(Badge::Paused { .. }), _) => Look::Yellow,
        (BreakerState::Closed, None, Because::Hold { .. }) => Look::Yellow,
        (BreakerState::Closed, None, _) => Look::Plain,
    }
}

fn because(because: Because) -> String {
    match because {
        Because::Pace => "their turn at the learned pace".to_owned(),
        Because::Hold { until, source } => {
            let until = seconds(until);
            match source {
                Source::Assumed => format!("hold until {until} after a refusal"),
                Source::RetryAfter => format!("hold until {until} by Retry-After"),
                other => format!("hold until {until} by {}", other.as_str()),
            }
        }
        Because::Breaker { until: Some(until) } => {
            format!("breaker open, next look at {}", seconds(until))
        }
        Because::Breaker { until: None } => "breaker open until a person looks".to_owned(),
        Because::Probes => "a few find out whether it works again".to_owned(),
    }
}

fn story(told: &[Told]) -> Vec<Line> {
    let lines = told.iter().map(|Told { at, who, what }| {
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

