//! Fetches URLs politely: `tidegate fetch`, and jobs in the server.
//!
//! Four stages, each with a bound. **Discovery** finds URLs: lists, sitemaps and the links of a crawl;
//! every URL is queued once. **Extraction** requests them, each through the gate of its host, robots.txt
//! permitting. **Processing** reads a body piece by piece while it arrives: decoded, hashed, searched for
//! links. **Output** takes one [`UrlRecord`] for every URL, failed ones too.
//!
//! What waits is on disk (`frontier`) or in a heap (`retries`), never in a task: each host has a `lane`
//! that asks its gate, and starts an `attempt` when it is admitted.

mod attempt;
mod body;
mod decode;
mod engine;
mod folder;
mod frontier;
mod item;
mod jsonl;
mod lane;
mod links;
mod list;
mod output;
mod page;
mod plan;
mod progress;
mod rate;
mod record;
mod report;
mod retries;
mod robots;
mod scope;
mod sitemap;
mod slots;
mod spans;
mod trackers;
mod url;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::url::Url;
use http::HeaderValue;
use policy::backoff::BackoffSettings;
use policy::preset::Preset;
use policy::random::Random;
use policy::time::Timestamp;
use tidegate::event::{Event, EventListener};
use tidegate::{Sort, Totals};
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;

pub use folder::{FolderError, check_folder};
pub use frontier::StateError;
pub use jsonl::JsonlError;
pub use plan::{FetchPlan, LinesTarget, RecordObserver};
pub use progress::{FetchCounts, FetchProgress, HostWait, Stage, WaitReason};
pub use record::{ThirdParty, UrlError, UrlRecord};
pub use report::{
    AttemptClass, Band, BandKind, ContentTypeCount, DeniedUrl, DuplicateTitle, ErrorCount,
    FailedUrl, HostReport, Listed, Redirect, Report, ReportBuilder, ReportEnd, ReportTotals,
    RequestCounts, SlowUrl, StatusCount, ThirdPartyHost, TimeSeries,
};
pub use scope::{BadPattern, Scope, SeedHosts};
pub use trackers::{BadFilters, MAX_FILTERS, ResourceKind, Trackers, is_third_party};
pub use url::{BadUrl, parse_given};

use engine::{Engine, EngineState};
use folder::Folder;
use frontier::{EntryKind, Frontier};
use jsonl::Jsonl;
use links::Links;
use list::List;
use output::Output;
use rate::RecentRate;
use slots::Slots;

use crate::core::Core;
use crate::exchange::Exchange;
use crate::settings::{Settings, Size};

/// A fetch. Everything runs in the task that calls [`Fetcher::run`].
#[derive(Debug)]
pub struct Fetcher {
    engine: Rc<Engine>,
    input: RefCell<Option<Input>>,
    started: Timestamp,
    /// The stage after all URLs have ended.
    stage: Cell<Option<Stage>>,
    recent: RefCell<RecentRate>,
}

/// Where URLs come from.
#[derive(Debug)]
struct Input {
    /// Places of URLs that an earlier run left.
    queued: Vec<u64>,
    sitemaps: Vec<Url>,
    urls: Vec<Url>,
    list: Option<List>,
}

/// How a fetch ended.
#[derive(Clone, Debug)]
pub struct FetchSummary {
    /// What was counted, earlier runs included.
    pub counts: FetchCounts,
    /// How many URLs failed, by error.
    pub errors: BTreeMap<UrlError, u64>,
    /// URLs that were left out, because there were too many.
    pub left_out: u64,
    /// Totals over all gates.
    pub totals: Totals,
    /// How long this run took.
    pub elapsed: Duration,
    /// Whether it was stopped before its end.
    pub is_interrupted: bool,
    /// What can be told of it, if a report was asked for.
    pub report: Option<Report>,
}

/// Why a fetch did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The state file cannot be used.
    #[error("cannot go on from `{}`", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StateError,
    },
    /// The file of lines cannot be used.
    #[error(transparent)]
    LinesFile(JsonlError),
    /// The folder for bodies cannot be used.
    #[error(transparent)]
    Folder(FolderError),
    /// The user agent cannot be sent.
    #[error("`fetch.user_agent` cannot be sent in a header, expected printable ASCII")]
    UserAgent,
    /// The queue cannot be written or read.
    #[error("the queue of URLs cannot be written")]
    Queue(#[source] io::Error),
    /// Lines cannot be written.
    #[error("the lines of JSON cannot be written")]
    Lines(#[source] io::Error),
    /// The list of URLs cannot be read.
    #[error("the list of URLs cannot be read")]
    List(#[source] io::Error),
    /// A task ended in a way that is a defect.
    #[error("a task of the fetch panicked, which is a defect of Tidegate")]
    Panicked,
}

impl Fetcher {
    /// A fetch by this plan, over connections of worker number `worker`. Opens every file; nothing is
    /// sent before [`Fetcher::run`].
    ///
    /// # Errors
    ///
    /// If a file cannot be used.
    pub fn new(
        core: Arc<Core>,
        settings: &Settings,
        plan: FetchPlan,
        worker: usize,
    ) -> Result<Self, FetchError> {
        let now = core.clock().now();
        let has_report = plan.report.is_some();
        let report = has_report.then(|| {
            let builder = ReportBuilder::new(core.clock().wall(), now);
            Arc::new(Mutex::new(builder))
        });
        let mut output = Output::new(report, plan.observer);
        let (frontier, queued) = match &plan.state {
            Some(path) => open_state(path, plan.max_urls, &mut output)?,
            None => (
                Frontier::temporary(plan.max_urls).map_err(FetchError::Queue)?,
                Vec::new(),
            ),
        };
        output.lines = open_lines(plan.lines, plan.state.as_deref())?;
        let folder = plan.folder.as_deref().map(Folder::open).transpose();
        let links = match (&plan.state, has_report && plan.scope.searches(0)) {
            (_, false) => None,
            (Some(path), true) => Some(Links::open(&links_path(path))),
            (None, true) => Some(Links::temporary()),
        };
        let fetch = settings.fetch.clone();
        let version = env!("CARGO_PKG_VERSION");
        let user_agent = fetch.user_agent.replace("VERSION", version);
        let seed = core.clock().wall().as_unix_millis().unsigned_abs() ^ now.as_nanos();
        let engine = Engine {
            exchange: Exchange::new(&core, settings),
            backoff: backoff(settings),
            worker,
            user_agent: HeaderValue::from_str(&user_agent).map_err(|_| FetchError::UserAgent)?,
            product: user_agent,
            headers: plan.headers,
            random: RefCell::new(Random::from_seed(seed)),
            slots: Slots::new(fetch.concurrency),
            trust: plan.trust,
            max_body: match fetch.max_body {
                Size::Bytes(bytes) => bytes,
                Size::None => u64::MAX,
            },
            settings: fetch,
            scope: plan.scope,
            trackers: plan.report,
            folder: folder.map_err(FetchError::Folder)?,
            frontier: RefCell::new(frontier),
            links: links
                .transpose()
                .map_err(FetchError::Queue)?
                .map(RefCell::new),
            output: RefCell::new(output),
            state: EngineState::default(),
            core,
        };
        Ok(Self {
            engine: Rc::new(engine),
            input: RefCell::new(Some(Input {
                queued,
                sitemaps: plan.sitemaps,
                urls: plan.urls,
                list: plan.list.map(List::new),
            })),
            started: now,
            stage: Cell::new(None),
            recent: RefCell::default(),
        })
    }

    /// Fetches everything. When `stop` is ready, nothing further is started; what is in flight is
    /// finished. Must be called once, in a current-thread runtime of tokio.
    ///
    /// # Errors
    ///
    /// What made it impossible to go on. What is in flight was finished.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<FetchSummary, FetchError> {
        let listener = self.listen();
        let tasks = LocalSet::new();
        tasks.run_until(self.drive(stop)).await;
        // Lanes and attempts hold the engine.
        drop(tasks);
        if let Some(listener) = listener {
            self.engine.core.events().remove(&listener);
        }
        self.tick();
        match self.engine.take_problem() {
            Some(problem) => Err(problem),
            None => self.finish(),
        }
    }

    /// How far it is.
    pub fn progress(&self) -> FetchProgress {
        let engine = &self.engine;
        let counts = self.counts();
        let known = counts.known.saturating_sub(counts.done);
        let rate = self.recent.borrow().per_second();
        let is_discovered = engine.state.has_all.get() && engine.state.expandable.get() == 0;
        let stage = match (self.stage.get(), is_discovered) {
            (Some(stage), _) => stage,
            (None, true) => Stage::Extraction,
            (None, false) => Stage::Discovery,
        };
        let eta = (rate > 0.0).then(|| known as f64 / rate);
        FetchProgress {
            stage,
            percent: 100.0 * engine.output.borrow_mut().share(),
            counts,
            rate_per_second: rate,
            eta: eta.and_then(|eta| Duration::try_from_secs_f64(eta).ok()),
            waiting: self.waiting(),
        }
    }

    fn counts(&self) -> FetchCounts {
        let engine = &self.engine;
        let in_flight = u64::from(engine.slots.used());
        let retrying = engine.state.retries.len() as u64;
        let open = engine.state.open.get();
        FetchCounts {
            queued: open.saturating_sub(in_flight + retrying),
            in_flight,
            retrying,
            sent: engine.state.sent.get(),
            ..engine.output.borrow().counts
        }
    }

    /// The host for which most URLs wait.
    fn waiting(&self) -> Option<HostWait> {
        let now = self.engine.core.clock().now();
        let state = &self.engine.state;
        let lanes = state.lanes.borrow();
        let waiting = lanes.values().filter_map(|lane| {
            let (reason, until) = lane.wait()?;
            Some(HostWait {
                key: lane.key.clone(),
                reason,
                wait: until.map(|until| until.since(now)),
                urls: lane.waiting() + 1,
            })
        });
        let longest = waiting.max_by_key(|wait| (wait.urls, std::cmp::Reverse(wait.key.clone())));
        longest.or_else(|| {
            let (at, url) = state.retries.first()?;
            Some(HostWait {
                key: policy::key::normalize(url.as_str()).unwrap_or_default(),
                reason: WaitReason::Retry,
                wait: Some(at.since(now)),
                urls: state.retries.len() as u64,
            })
        })
    }

    /// Passes events of gates to the report.
    fn listen(&self) -> Option<Arc<dyn EventListener>> {
        let report = self.engine.output.borrow().report.clone()?;
        let listener: Arc<dyn EventListener> = Arc::new(ReportListener(report));
        self.engine.core.events().add(Arc::clone(&listener));
        Some(listener)
    }

    async fn drive(&self, stop: impl Future<Output = ()>) {
        let engine = &self.engine;
        let mut stop = pin!(stop);
        let mut discovery = pin!(self.discover());
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !engine.is_done() {
            tokio::select! {
                () = &mut stop, if !engine.is_stopped() => engine.stop(),
                () = &mut discovery, if !engine.state.has_all.get() && !engine.is_stopped() => {
                    engine.state.has_all.set(true);
                }
                item = engine.state.retries.next(engine.core.clock()), if !engine.is_stopped() => {
                    engine.take_retry(item);
                }
                () = engine.state.changed.notified() => {}
                _ = ticks.tick() => self.tick(),
            }
        }
    }

    async fn discover(&self) {
        let Some(input) = self.input.borrow_mut().take() else {
            return;
        };
        let engine = &self.engine;
        for place in input.queued {
            engine.resume(place);
        }
        for sitemap in input.sitemaps {
            engine.add_given(sitemap.as_str(), EntryKind::Sitemap);
        }
        for url in input.urls {
            engine.add_given(url.as_str(), EntryKind::Page);
        }
        let Some(mut list) = input.list else {
            return;
        };
        loop {
            match list.next().await {
                Ok(lines) if lines.is_empty() => return,
                Ok(lines) => {
                    for line in lines {
                        engine.add_given(&line, EntryKind::Page);
                    }
                }
                Err(error) => return engine.stop_with(FetchError::List(error)),
            }
        }
    }

    /// What is done from time to time.
    fn tick(&self) {
        let engine = &self.engine;
        let now = engine.core.clock().now();
        let mut output = engine.output.borrow_mut();
        if let Err(error) = output.flush(&mut engine.frontier.borrow_mut()) {
            engine.stop_with(error);
        }
        let is_second = self.recent.borrow_mut().add(now, output.counts.done);
        if !is_second {
            return;
        }
        if let Some(report) = &output.report {
            let sort = Sort::Admitted;
            let snapshot = engine.core.limiter().snapshot(sort, MAX_SAMPLED);
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.sample(now, &snapshot.gates);
        }
        engine.exchange.close_idle(engine.worker);
    }

    fn finish(&self) -> Result<FetchSummary, FetchError> {
        let engine = &self.engine;
        let totals = engine.core.limiter().snapshot(Sort::Admitted, 0).totals;
        let counts = self.counts();
        let is_interrupted = engine.is_stopped();
        self.stage.set(Some(Stage::Processing));
        let report = self.report(!is_interrupted)?;
        self.stage.set(Some(Stage::Output));
        let output = engine.output.borrow();
        Ok(FetchSummary {
            counts,
            errors: output.errors.clone(),
            left_out: engine.state.left_out.get(),
            totals,
            elapsed: engine.core.clock().now().since(self.started),
            is_interrupted,
            report,
        })
    }

    fn report(&self, is_complete: bool) -> Result<Option<Report>, FetchError> {
        let engine = &self.engine;
        let mut output = engine.output.borrow_mut();
        let Some(report) = output.report.take() else {
            return Ok(None);
        };
        let failed = std::mem::take(&mut output.failed);
        let places = match &engine.links {
            Some(links) => {
                let failed = failed.iter().map(String::as_str);
                let sources = links.borrow_mut().sources(failed);
                sources.map_err(FetchError::Queue)?
            }
            None => Default::default(),
        };
        let sources = |url: &str| {
            let places = places.get(url).map_or(&[][..], Vec::as_slice);
            let entries = places
                .iter()
                .filter_map(|&place| engine.frontier.borrow_mut().entry(place).ok());
            entries.map(|entry| entry.url).collect()
        };
        let end = ReportEnd {
            at: engine.core.clock().now(),
            is_complete,
            throttled: engine.state.throttled.get(),
        };
        let builder = Arc::try_unwrap(report).ok();
        let builder =
            builder.map(|report| report.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(builder.map(|builder| builder.finish(end, sources)))
    }
}

#[cfg(test)]
mod tests;

/// How often everything is written and looked at.
const TICK: Duration = Duration::from_millis(100);

/// As many gates are looked at for the report.
const MAX_SAMPLED: usize = 1000;

/// Passes events of gates to a report.
#[derive(Debug)]
struct ReportListener(Arc<Mutex<ReportBuilder>>);

impl EventListener for ReportListener {
    /// Holds and breakers are enough.
    fn wants_everything(&self) -> bool {
        false
    }

    fn on_event(&self, at: Timestamp, event: &Event<'_>) {
        let mut report = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        report.event(at, event);
    }
}

fn open_state(
    path: &Path,
    max_urls: usize,
    output: &mut Output,
) -> Result<(Frontier, Vec<u64>), FetchError> {
    let opened = Frontier::open(path, max_urls, |_, record| {
        let url = record.final_url.as_deref().unwrap_or(&record.url);
        let key = policy::key::normalize(url).unwrap_or_default();
        output.known();
        output.count(&record, &key, true);
        Ok(())
    });
    opened.map_err(|source| FetchError::State {
        path: path.to_owned(),
        source,
    })
}

fn open_lines(
    target: Option<LinesTarget>,
    state: Option<&Path>,
) -> Result<Option<Jsonl>, FetchError> {
    let lines = match (target, state) {
        (None, _) => return Ok(None),
        (Some(LinesTarget::Stream(stream)), _) => Ok(Jsonl::stream(stream)),
        (Some(LinesTarget::File(path)), None) => Jsonl::create(&path),
        (Some(LinesTarget::File(path)), Some(state)) => {
            let ended = frontier::ended(state).map_err(FetchError::Queue)?;
            Jsonl::resume(&path, ended)
        }
    };
    lines.map(Some).map_err(FetchError::LinesFile)
}

/// The file with the links of pages, beside the state.
pub(crate) fn links_path(state: &Path) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(".links");
    name.into()
}

/// The backoff of attempts.
fn backoff(settings: &Settings) -> BackoffSettings {
    let name = Preset::Crawl.as_str();
    let configured = settings.backoffs.get(name).cloned();
    configured.unwrap_or_else(|| Preset::Crawl.settings())
}
