//! The engine in virtual time, with attempts that are scripted.

use std::collections::BTreeMap;
use std::sync::Mutex;

use policy::failure_queue::FailureQueueOptions;
use tokio::time::{Instant, sleep};

use super::super::item::ItemSource;
use super::super::stop;
use super::*;

/// Every attempt takes this long, in virtual time.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Attempts end as scripted: for each item the ends of its attempts, the last of which repeats.
struct Script {
    ends: BTreeMap<&'static str, Vec<End>>,
    began: Instant,
    /// When which item started, in seconds.
    starts: Arc<Mutex<Vec<(u64, String)>>>,
}

#[derive(Clone, Copy)]
enum End {
    Ok,
    Fail,
    /// A private video, by the rules of yt-dlp.
    Never,
}

impl Runner for Script {
    async fn attempt(&self, item: &Item, _: &LiveOutput) -> AttemptEnd {
        let second = self.began.elapsed().as_secs();
        self.starts
            .lock()
            .unwrap()
            .push((second, item.text.to_string()));
        sleep(ATTEMPT).await;
        let ends = self
            .ends
            .get(&*item.text)
            .map_or(&[End::Ok][..], |ends| ends);
        let end = ends.get(item.attempts as usize).or_else(|| ends.last());
        let (code, output) = match end {
            Some(End::Fail) => (1, "ERROR: Read timed out."),
            Some(End::Never) => (1, "ERROR: Private video. Sign in"),
            Some(End::Ok) | None => (0, ""),
        };
        AttemptEnd::Exited {
            exit: Exit::Code(code),
            output: output.into(),
        }
    }
}

struct Plan {
    items: String,
    ends: Vec<(&'static str, Vec<End>)>,
    settings: Vec<(&'static str, &'static str)>,
    jobs: usize,
    is_per_host: bool,
    past: Past,
}

fn plan(items: &str) -> Plan {
    Plan {
        items: items.to_owned(),
        ends: Vec::new(),
        settings: Vec::new(),
        jobs: 1,
        is_per_host: false,
        past: Past::default(),
    }
}

/// What happened: starts in seconds, and the summary.
struct Happened {
    starts: Vec<(u64, String)>,
    summary: RunSummary,
    events: Events,
}

#[derive(Default)]
struct Events {
    /// The multiplier and the gap in seconds after each end.
    gaps: Vec<(usize, u64)>,
    gave_up: Vec<Option<String>>,
    refused: usize,
}

impl RunObserver for Events {
    fn event(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Ended { failures, gap, .. } => self.gaps.push((*failures, gap.as_secs())),
            RunEvent::GaveUp { site } => self.gave_up.push(site.map(str::to_owned)),
            RunEvent::Refused { .. } => self.refused += 1,
            RunEvent::Started { .. } | RunEvent::Waiting { .. } => {}
        }
    }
}

impl Plan {
    async fn run(self) -> Happened {
        let mut options = FailureQueueOptions::default();
        for (name, value) in self.settings {
            options.set(name, value).unwrap();
        }
        let starts = Arc::default();
        let script = Script {
            ends: self.ends.into_iter().collect(),
            began: Instant::now(),
            starts: Arc::clone(&starts),
        };
        let format = ItemFormat {
            is_per_host: self.is_per_host,
            ..ItemFormat::default()
        };
        let items = self.items.split_whitespace().map(str::to_owned).collect();
        let past = Arc::new(self.past);
        let input = Input::open(vec![ItemSource::Texts(items)], format, &past, false).unwrap();
        let rules = RuleSet::named("yt-dlp").unwrap();
        let settings = options.build().unwrap();
        let engine = Engine::new(script, input, Clock::tokio(), self.jobs, settings, rules);
        let engine = engine.with_format(format).continuing(None, past).unwrap();
        let mut events = Events::default();
        let (_stop, stopped) = stop();
        let summary = engine.run(stopped, &mut events).await.unwrap();
        let starts = starts.lock().unwrap().clone();
        Happened {
            starts,
            summary,
            events,
        }
    }
}

impl Happened {
    fn starts(&self) -> Vec<(u64, &str)> {
        let starts = self.starts.iter();
        starts
            .map(|(second, item)| (*second, item.as_str()))
            .collect()
    }

    fn failed(&mut self) -> Vec<(String, FailReason)> {
        let failed = std::iter::from_fn(|| self.summary.next_failed());
        failed
            .map(|failed| (failed.item.into(), failed.reason))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn single_recent_failure_doubles_the_wait() {
    let mut plan = plan("a b c");
    plan.ends = vec![("a", vec![End::Fail, End::Ok])];
    let happened = plan.run().await;
    // 60 s after the end of `a`; then, after a success, 30 s. `a` is last now.
    assert_eq!(
        happened.starts(),
        [(0, "a"), (61, "b"), (92, "c"), (123, "a")]
    );
    assert_eq!(happened.events.gaps, [(1, 60), (0, 30), (0, 30), (0, 30)]);
    assert_eq!((happened.summary.done, happened.summary.failed), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn five_failures_wait_three_minutes() {
    let mut plan = plan("a b c d e f");
    // Long enough for all five to count at once.
    plan.settings = vec![("max_age", "1h"), ("attempts", "1")];
    plan.ends = ["a", "b", "c", "d", "e"]
        .map(|item| (item, vec![End::Fail]))
        .into();
    let happened = plan.run().await;
    let gaps: Vec<u64> = happened.events.gaps.iter().map(|(_, gap)| *gap).collect();
    assert_eq!(gaps, [60, 90, 120, 150, 180, 150]);
    let (last, item) = happened.starts()[5];
    assert_eq!((last, item), (5 + 60 + 90 + 120 + 150 + 180, "f"));
}

#[tokio::test(start_paused = true)]
async fn each_success_reduces_the_wait() {
    let mut plan = plan("a b c d e f g h");
    plan.settings = vec![("max_age", "1h"), ("attempts", "1")];
    plan.ends = ["a", "b", "c", "d", "e"]
        .map(|item| (item, vec![End::Fail]))
        .into();
    let happened = plan.run().await;
    assert_eq!(
        happened.events.gaps[4..],
        [(5, 180), (4, 150), (3, 120), (2, 90)]
    );
}

#[tokio::test(start_paused = true)]
async fn old_failures_stop_counting() {
    let mut plan = plan("a b c");
    plan.settings = vec![("base", "200s"), ("attempts", "1")];
    plan.ends = vec![("a", vec![End::Fail])];
    let happened = plan.run().await;
    // The failure of second 1 expires at 301, before the gap of 400 s ends: 200 s have passed.
    assert_eq!(happened.starts(), [(0, "a"), (301, "b"), (502, "c")]);
    assert_eq!(happened.events.gaps, [(1, 400), (0, 200), (0, 200)]);
}

#[tokio::test(start_paused = true)]
async fn empty_queue_waits_the_base() {
    let happened = plan("a b c").run().await;
    assert_eq!(happened.starts(), [(0, "a"), (31, "b"), (62, "c")]);
    assert_eq!(happened.summary.elapsed, Duration::from_secs(63));
}

#[tokio::test(start_paused = true)]
async fn full_queue_waits_fifty_minutes() {
    let mut plan = plan("last");
    let just_now = Some(Duration::ZERO);
    let record = PacerRecord {
        failures: vec![Duration::ZERO; 150],
        last: just_now,
    };
    plan.past.paces.insert(String::new(), record);
    plan.settings = vec![("max_age", "2h")];
    let happened = plan.run().await;
    assert_eq!(happened.starts(), [(3030, "last")]);
    assert_eq!(happened.events.gaps, [(99, 3000)]);
}

#[tokio::test(start_paused = true)]
async fn terminal_items_are_not_tried_again_and_slow_nothing_down() {
    let mut plan = plan("a b c");
    plan.ends = vec![("a", vec![End::Never]), ("b", vec![End::Fail])];
    let mut happened = plan.run().await;
    assert_eq!(
        happened.starts(),
        [(0, "a"), (31, "b"), (92, "c"), (123, "b"), (184, "b")]
    );
    assert_eq!(
        happened.failed(),
        [
            ("a".to_owned(), FailReason::Rejected),
            ("b".to_owned(), FailReason::Exhausted)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn starts_stay_single_with_several_jobs() {
    let mut plan = plan("a b c");
    plan.jobs = 3;
    plan.settings = vec![("base", "400ms")];
    let happened = plan.run().await;
    assert_eq!(happened.summary.done, 3);
    // They start at 0, 0.4 and 0.8 s.
    assert_eq!(happened.summary.elapsed, Duration::from_millis(1800));
}

#[tokio::test(start_paused = true)]
async fn without_a_gap_all_jobs_start_at_once() {
    let mut plan = plan("a b c d e f");
    plan.jobs = 3;
    plan.settings = vec![("base", "0s")];
    plan.ends = vec![("b", vec![End::Fail, End::Ok])];
    let happened = plan.run().await;
    assert_eq!(happened.summary.elapsed, Duration::from_secs(3));
    assert_eq!(happened.starts()[6], (2, "b"));
}

#[tokio::test(start_paused = true)]
async fn gives_up_without_success_and_reports_what_is_left() {
    let mut plan = plan("a b c d");
    plan.settings = vec![("give_up_after", "100s")];
    plan.ends = ["a", "b", "c"].map(|item| (item, vec![End::Fail])).into();
    let mut happened = plan.run().await;
    assert_eq!(happened.starts(), [(0, "a"), (61, "b")]);
    assert!(happened.summary.has_given_up);
    assert_eq!(happened.summary.elapsed.as_secs(), 100);
    let failed = happened.failed();
    assert_eq!(failed.len(), 4);
    assert!(
        failed
            .iter()
            .all(|(_, reason)| *reason == FailReason::GaveUp)
    );
    assert_eq!(happened.events.gave_up, [None]);
}

#[tokio::test(start_paused = true)]
async fn each_site_has_its_own_gap() {
    let mut plan = plan("http://a/1 http://a/2 http://b/1 http://A:80/3 http://b/2");
    plan.is_per_host = true;
    plan.ends = vec![("http://a/1", vec![End::Fail, End::Ok])];
    let happened = plan.run().await;
    assert_eq!(
        happened.starts(),
        [
            (0, "http://a/1"),
            (1, "http://b/1"),
            (32, "http://b/2"),
            (61, "http://a/2"),
            (92, "http://A:80/3"),
            (123, "http://a/1"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn one_site_gives_up_and_others_go_on() {
    let mut plan = plan("http://a/1 http://b/1 http://a/2 http://b/2 http://b/3 http://b/4");
    plan.is_per_host = true;
    plan.settings = vec![("give_up_after", "50s")];
    plan.ends = vec![("http://a/1", vec![End::Fail])];
    let mut happened = plan.run().await;
    let failed: Vec<String> = happened
        .failed()
        .into_iter()
        .map(|(item, _)| item)
        .collect();
    assert_eq!(failed, ["http://a/2", "http://a/1"]);
    assert_eq!(happened.summary.done, 4);
    assert_eq!(happened.events.gave_up, [Some("a".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn stops_between_attempts_and_finishes_those_in_flight() {
    let script = Script {
        ends: BTreeMap::new(),
        began: Instant::now(),
        starts: Arc::default(),
    };
    let starts = Arc::clone(&script.starts);
    let items = ["a", "b", "c"].map(str::to_owned).to_vec();
    let past = Arc::default();
    let format = ItemFormat::default();
    let input = Input::open(vec![ItemSource::Texts(items)], format, &past, false).unwrap();
    let settings = FailureQueueSettings::default();
    let engine = Engine::new(
        script,
        input,
        Clock::tokio(),
        1,
        settings,
        RuleSet::default(),
    );
    let (stop, stopped) = stop();
    let mut events = Events::default();
    let (summary, ()) = tokio::join!(engine.run(stopped, &mut events), async {
        while starts.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.send(StopLevel::Finish).unwrap();
    });
    let summary = summary.unwrap();
    assert!(summary.is_interrupted);
    assert_eq!((summary.done, starts.lock().unwrap().len()), (1, 1));
    assert_eq!(summary.elapsed, ATTEMPT);
}
