//! The progress of a job: a bar that is redrawn on a terminal, else a line for every change.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use app::poll::PollProgress;
use policy::duration::Rounded;

use crate::output::{Output, StatusLines, escape, fit, wrap};

/// Where progress is shown.
#[derive(Debug)]
pub(super) enum Screen {
    /// In lines of a terminal, redrawn in place.
    Live {
        lines: StatusLines,
        view: Option<View>,
    },
    /// A line for every change.
    Plain { last: Option<View> },
    /// Nowhere.
    Hidden,
}

/// What is shown.
#[derive(Clone, Debug)]
pub(super) struct View {
    percent: Option<u8>,
    /// The job's last known status in the server's word.
    status: Option<String>,
    /// What is wrong with the last response.
    problem: Option<String>,
    next_at: Option<Instant>,
    eta: Option<Duration>,
    is_slowed: bool,
}

impl Screen {
    /// `is_json`: stderr has lines of JSON.
    pub(super) fn new(is_json: bool, output: &Output) -> Self {
        if is_json || output.is_quiet() {
            return Self::Hidden;
        }
        match output.status_lines() {
            Some(lines) => Self::Live { lines, view: None },
            None => Self::Plain { last: None },
        }
    }

    /// The lines, for a log that is written above them.
    pub(super) fn lines(&self) -> Option<StatusLines> {
        match self {
            Self::Live { lines, .. } => Some(lines.clone()),
            Self::Plain { .. } | Self::Hidden => None,
        }
    }

    /// Takes a response.
    pub(super) fn update(&mut self, progress: &PollProgress<'_>, output: &Output) {
        let now = Instant::now();
        match self {
            Self::Live { view, .. } => {
                *view = Some(View::new(progress, view.as_ref(), now));
                self.draw();
            }
            Self::Plain { last } => {
                let new = View::new(progress, last.as_ref(), now);
                let was_slowed = last.as_ref().is_some_and(|last| last.is_slowed);
                if new.is_slowed && !was_slowed {
                    output.notice(NOTICE);
                }
                if last.as_ref().is_none_or(|last| new.differs(last)) {
                    let elapsed = Rounded(progress.update.elapsed).to_string();
                    output.notice(&format!("{elapsed:>7}  {}", new.line(now)));
                }
                *last = Some(new);
            }
            Self::Hidden => {}
        }
    }

    /// Draws it again, because time passes.
    pub(super) fn draw(&mut self) {
        if let Self::Live { lines, view } = self {
            let columns = lines.columns();
            lines.draw(&match view {
                Some(view) => view.picture(Instant::now(), columns),
                None => fit("waiting for the first response", columns),
            });
        }
    }

    /// Removes it.
    pub(super) fn clear(&mut self) {
        if let Self::Live { lines, .. } = self {
            lines.draw("");
        }
    }
}

/// Shown exactly while polling is slowed.
const NOTICE: &str = "Slowing down: the server limits how often its status may be asked for. The job is not affected; checks speed up again once the limit clears.";

impl View {
    fn new(progress: &PollProgress<'_>, last: Option<&Self>, now: Instant) -> Self {
        let PollProgress {
            update,
            response,
            eta,
        } = progress;
        let status = response.status.as_deref().map(escape).map(Cow::into_owned);
        Self {
            percent: update.progress.map(percent),
            status: status.or_else(|| last.and_then(|last| last.status.clone())),
            problem: response.problem.as_deref().map(escape).map(Cow::into_owned),
            next_at: update.wait.map(|wait| now + wait),
            eta: *eta,
            is_slowed: update.consecutive_429 > 0 && update.wait.is_some(),
        }
    }

    /// The job's status, which stays visible while polling is slowed, and any other problem.
    fn text(&self) -> Cow<'_, str> {
        match (&self.status, &self.problem) {
            (Some(status), Some(problem)) if !self.is_slowed => {
                format!("{status} ({problem})").into()
            }
            (Some(status), _) => status.into(),
            (None, Some(problem)) => problem.into(),
            (None, None) => "no status yet".into(),
        }
    }

    /// Is there anything new for people?
    fn differs(&self, last: &Self) -> bool {
        let shown = |view: &Self| (view.percent, view.text().into_owned(), view.is_slowed);
        shown(self) != shown(last)
    }

    /// When the next request comes and how long the job will take.
    fn times(&self, now: Instant) -> String {
        let next = self.next_at.map(|at| at.saturating_duration_since(now));
        let next = match next {
            Some(Duration::ZERO) => "asking now".to_owned(),
            Some(wait) => format!("next check in {}", Rounded(wait)),
            None => return String::new(),
        };
        match self.eta {
            Some(eta) => format!("{next}, about {} left", Rounded(eta)),
            None => next,
        }
    }

    /// One line for a pipe.
    fn line(&self, now: Instant) -> String {
        let percent = self.percent.map(|percent| format!("{percent:>3} %  "));
        let percent = percent.unwrap_or_default();
        match &*self.times(now) {
            "" => format!("{percent}{}", self.text()),
            times => format!("{percent}{}, {times}", self.text()),
        }
    }

    /// Lines for a terminal.
    fn picture(&self, now: Instant, columns: usize) -> String {
        let mut picture = fit(&format!("{}{}", self.bar(columns), self.text()), columns);
        let times = self.times(now);
        if !times.is_empty() {
            picture.push_str(&fit(&times, columns));
        }
        if self.is_slowed {
            for line in wrap(NOTICE, columns) {
                picture.push_str(&fit(&line, columns));
            }
        }
        picture
    }

    fn bar(&self, columns: usize) -> String {
        let Some(percent) = self.percent else {
            return String::new();
        };
        let width = (columns / 2).saturating_sub(10).clamp(4, 40);
        let done = usize::from(percent) * width / 100;
        let (done, left) = ("#".repeat(done), "-".repeat(width - done));
        format!("[{done}{left}] {percent:>3} %  ")
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between 0 and 100"
)]
fn percent(progress: f64) -> u8 {
    progress.clamp(0.0, 100.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> (View, Instant) {
        let now = Instant::now();
        let view = View {
            percent: Some(45),
            status: Some("analyzing content".to_owned()),
            problem: None,
            next_at: Some(now + Duration::from_millis(2400)),
            eta: Some(Duration::from_secs(65)),
            is_slowed: false,
        };
        (view, now)
    }

    #[test]
    fn draws_a_bar_that_fits_the_terminal() {
        let (view, now) = view();
        assert_eq!(
            view.picture(now, 80),
            "[#############-----------------]  45 %  analyzing content\n\
             next check in 3s, about 1m 5s left\n"
        );
        assert_eq!(
            view.picture(now, 40),
            "[####------]  45 %  analyzing content\n\
             next check in 3s, about 1m 5s left\n"
        );
        assert_eq!(
            view.picture(now, 20),
            "[#---]  45 %  anal…\nnext check in 3s, …\n"
        );
        assert_eq!(
            view.line(now),
            " 45 %  analyzing content, next check in 3s, about 1m 5s left"
        );
    }

    #[test]
    fn shows_the_notice_exactly_while_slowed() {
        let (mut view, now) = view();
        view.is_slowed = true;
        let picture = view.picture(now, 40);
        assert!(
            picture.lines().all(|line| line.chars().count() < 40),
            "{picture}"
        );
        assert!(
            picture.contains("Slowing down: the server limits how"),
            "{picture}"
        );
        view.is_slowed = false;
        assert_eq!(view.picture(now, 40).lines().count(), 2);
    }

    #[test]
    fn a_view_without_progress_and_next_request_is_its_text() {
        let (mut view, now) = view();
        (view.percent, view.next_at) = (None, None);
        assert_eq!(view.picture(now, 80), "analyzing content\n");
        assert_eq!(view.line(now), "analyzing content");
        view.problem = Some("HTTP 503".to_owned());
        assert_eq!(view.line(now), "analyzing content (HTTP 503)");
    }
}
