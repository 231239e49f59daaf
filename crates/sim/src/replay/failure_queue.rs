//! `failure-queue`: results of attempts, and the gap that follows from them.

use policy::duration::Exact;
use policy::failure_queue::{FailureQueue, FailureQueueSettings, Growth};
use policy::random::Random;
use policy::rules::{Class, Rules};
use policy::time::Timestamp;

use super::at::Timeline;
use super::event::{Event, QueueEvent};
use super::object::Object;
use super::problem::Problem;
use super::response::millis;
use super::{Replay, ReplayOptions};

#[derive(Debug)]
pub(super) struct FailureQueueReplay {
    settings: FailureQueueSettings,
    timeline: Timeline,
    rules: Rules,
    queue: FailureQueue,
    random: Random,
    explain: bool,
}

impl FailureQueueReplay {
    pub(super) fn new(settings: FailureQueueSettings, options: &ReplayOptions) -> Self {
        Self {
            settings: if options.jitter {
                settings
            } else {
                settings.without_variance()
            },
            timeline: Timeline::default(),
            rules: Rules::pack("yt-dlp").expect("a built-in pack"),
            queue: FailureQueue::new(),
            random: Random::from_seed(options.seed),
            explain: options.explain,
        }
    }

    fn take(&mut self, class: Option<Class>, now: Timestamp) {
        match class {
            Some(Class::Success) => self.queue.succeeded(&self.settings, now),
            Some(class) if class.is_failure() => self.queue.failed(&self.settings, now),
            Some(_) | None => {}
        }
    }

    /// Explains the length of the gap.
    fn gap(&self, now: Timestamp) -> String {
        let gap = Exact(self.queue.gap(&self.settings, now));
        let base = Exact(self.settings.base());
        let failures = match self.queue.failures(&self.settings, now) {
            0 => return format!("waits {gap}: no recent failure"),
            1 => "1 recent failure".to_owned(),
            failures => format!("{failures} recent failures"),
        };
        let growth = match self.settings.growth() {
            Growth::Linear => "adds it once more",
            Growth::Double => "doubles it",
        };
        format!("waits {gap}: base {base}, {failures}, each {growth}")
    }
}

impl Replay for FailureQueueReplay {
    fn line(&mut self, line: &str, out: &mut Vec<u8>) -> Result<(), Problem> {
        let event = Event::read(line)?;
        let at = event.required_at()?;
        let queue_event = event.queue_event()?;
        let now = self.timeline.advance(at)?;
        let (class, what) = match &queue_event {
            QueueEvent::Ask => (None, String::new()),
            QueueEvent::Result(class) => (Some(*class), format!("{}; ", class.as_str())),
            QueueEvent::Text(text) => {
                let judgement = self.rules.judge_text(text.as_bytes());
                let class = judgement.class.as_str();
                let what = match judgement.rule() {
                    Some(rule) => format!("{class} by rule `{}`; ", rule.name),
                    None => format!("{class}, no rule knows this text; "),
                };
                (Some(judgement.class), what)
            }
        };
        self.take(class, now);
        let wait = self.queue.wait(&self.settings, now, &mut self.random);
        Object::answering(Some(at), out)
            .number("failures", Some(self.queue.failures(&self.settings, now)))
            .number("wait_ms", Some(millis(wait)))
            .text("class", class.map(Class::as_str))
            .explained(self.explain.then(|| what + &self.gap(now)))
            .end();
        Ok(())
    }
}
