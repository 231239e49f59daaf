//! Runs a fetch against mocks that share its clock.
//!
//! Requests and responses are real, but time passes only while nothing is in flight. So a response
//! takes exactly as long as its mock says, however busy the machine is.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use app::core::Core;
use app::exchange::Trust;
use app::fetch::{FetchPlan, FetchSummary, Fetcher, UrlRecord};
use app::log::Log;
use app::mock::{Mock, MockSettings};
use app::settings::{Process, Settings, Sources};
use policy::time::Timestamp;
use tidegate::{ManualClock, Sort};
use tokio::runtime::Builder;

/// A fetch and its mocks, on one clock.
pub(crate) struct VirtualFetch {
    clock: ManualClock,
    pub(crate) core: Arc<Core>,
    settings: Settings,
    pub(crate) mocks: Vec<Mock>,
}

impl VirtualFetch {
    pub(crate) fn new(settings: &str, mocks: Vec<MockSettings>) -> Self {
        let sources = Sources {
            file: Some(("tidegate.toml".to_owned(), settings.into())),
            flags: Vec::new(),
        };
        let settings = Settings::load(&sources, &Process).unwrap();
        let clock = ManualClock::new();
        let core = Core::new(&settings, Log::silent(), clock.clock(), 1);
        let start = |mock: MockSettings| {
            let settings = MockSettings {
                clock: clock.clock(),
                ..mock
            };
            Mock::start(settings, "127.0.0.1:0".parse().unwrap(), NonZeroUsize::MIN).unwrap()
        };
        Self {
            core,
            settings,
            mocks: mocks.into_iter().map(start).collect(),
            clock,
        }
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.clock().now().since(Timestamp::ZERO)
    }

    /// Fetches these URLs to their end, or until `observe` says that it has seen enough. It is called
    /// whenever something may have changed.
    pub(crate) fn run(
        &self,
        urls: &[String],
        mut observe: impl FnMut() -> Observed,
    ) -> (FetchSummary, Vec<UrlRecord>) {
        let mut plan = FetchPlan::new(Trust::Operator);
        plan.urls = urls.iter().map(|url| url.parse().unwrap()).collect();
        let records = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&records);
        plan.observer = Some(Box::new(move |record| {
            seen.borrow_mut().push(record.clone());
        }));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let core = Arc::clone(&self.core);
        let fetcher = Fetcher::new(core, &self.settings, plan, 0).unwrap();
        let driver = async {
            loop {
                // Everything that is ready runs, and what it wakes.
                for _ in 0..ROUNDS {
                    tokio::task::yield_now().await;
                    match observe() {
                        Observed::Nothing => {}
                        Observed::Late(time) => self.clock.advance(time),
                        Observed::Enough => return,
                    }
                }
                if self.in_flight() == 0 {
                    self.advance();
                }
            }
        };
        let summary = runtime.block_on(fetcher.run(driver)).unwrap();
        (summary, records.take())
    }

    fn in_flight(&self) -> u64 {
        let snapshot = self.core.limiter().snapshot(Sort::Admitted, 0);
        snapshot.totals.in_flight
    }

    /// Advances the clock to the next time at which something happens.
    fn advance(&self) {
        if let Some(next) = self.clock.next_alarm() {
            self.clock.advance_to(next);
        }
    }
}

/// What a test saw.
#[derive(Debug, PartialEq)]
pub(crate) enum Observed {
    /// Nothing in particular.
    Nothing,
    /// What is in flight is at a mock, which responds after this time.
    Late(Duration),
    /// All that it needs.
    Enough,
}

/// How often one task may wake another until nothing is left to do but to wait.
const ROUNDS: usize = 20;
