//! `tidegate fetch`: fetches URLs, lists, sitemaps and whole sites.

mod input;
mod results;
mod screen;
mod summary;

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use app::admin;
use app::core::Core;
use app::fetch::{FetchError, FetchSummary, Fetcher, JsonlError, UrlRecord};
use app::settings::Flag;
use clap::Args;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

use super::server::block_on;
use super::stopping::Signals;
use super::{Failure, LogFormat};
use crate::args::ConfigFile;
use crate::exit::Exit;
use crate::output::Output;

use self::input::FetchInput;
use self::results::Results;
use self::screen::Screen;

/// Fetch URLs, lists, sitemaps or whole sites
///
/// Every host is asked as fast as it takes, and not faster: its limit is learned
/// from its responses. robots.txt is obeyed. Bodies are stored with --out; without
/// it they are read, counted and searched for links, and then dropped.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FetchArgs {
    /// URLs to fetch
    #[arg(value_name = "URL")]
    urls: Vec<String>,

    /// File with further URLs, one a line; `-` is stdin
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Sitemap with further URLs, or an index of sitemaps; may be repeated
    #[arg(long = "sitemap", value_name = "URL")]
    sitemaps: Vec<String>,

    /// Go on from this file after an interruption; it is created at first
    #[arg(long, value_name = "STATE")]
    resume: Option<PathBuf>,

    /// Format of the log on stderr
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    log: LogFormat,

    #[command(flatten)]
    crawl: CrawlArgs,

    #[command(flatten)]
    outputs: OutputArgs,

    #[command(flatten)]
    requests: RequestArgs,

    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// Which links are followed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Crawling")]
struct CrawlArgs {
    /// Follow the links of pages
    #[arg(long)]
    crawl: bool,

    /// How many links away from the given URLs [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    depth: Option<String>,

    /// Follow links to the hosts of the given URLs only
    #[arg(long)]
    same_host: bool,

    /// Follow links that match this pattern only; may be repeated
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    include: Vec<String>,

    /// Do not follow links that match this pattern; may be repeated
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    exclude: Vec<String>,
}

/// What is written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Store bodies in this folder; a later run fetches what has changed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Write a line of JSON for every URL, failed ones too; `-` is stdout
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,

    /// Write a report: a page with its data beside it as .json, or FILE.json alone
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Filter list in EasyList format, for the trackers in the report
    #[arg(long, value_name = "FILE")]
    filters: Option<PathBuf>,
}

/// How requests are made.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
struct RequestArgs {
    /// Requests in flight at once, over all hosts [default: 256]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    concurrency: Option<String>,

    /// Header `NAME: VALUE`, sent to the given hosts only; a secret is env:NAME or
    /// file:PATH; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,

    /// User-Agent, also for robots.txt [default: tidegate/VERSION]
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,

    /// Fetch what robots.txt does not allow
    #[arg(long)]
    no_robots: bool,

    /// The longest body that is fetched [default: 16MiB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    max_body: Option<String>,

    /// How many redirects in a row are followed [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_redirects: Option<String>,

    /// Give up at a host that refuses, without any success for this time
    /// [default: 60s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    give_up_after: Option<String>,
}

const EXAMPLES: &str = "\
The first Ctrl-C finishes what is in flight, and writes state and report; the
second quits at once. Exit codes: 0 all fetched, 1 some failed, 2 usage, 69 all
that failed were refused by a breaker, 75 all that failed were given up while
throttled, 130 interrupted.

Examples:
  tidegate fetch https://example.com/ --out pages
  tidegate fetch -i urls.txt --jsonl results.jsonl --resume urls.state
  tidegate fetch https://example.com/ --crawl --depth 3 --same-host \\
    --exclude '/login' --report site.html
  tidegate fetch --sitemap https://example.com/sitemap.xml --out pages
  tidegate fetch https://api.example.com/items?page=1 \\
    -H 'authorization: Bearer env:TOKEN' --jsonl -";

pub(super) fn run(args: &FetchArgs, output: &Output) -> Result<(), Failure> {
    let FetchInput { settings, mut plan } = input::read(args, output)?;
    let mut logs = output.logs(args.log)?;
    let screen = Screen::new(matches!(args.log, LogFormat::Json), output);
    if let Some(lines) = screen.lines() {
        logs.sink = Box::new(lines);
    }
    let results = Rc::new(RefCell::new(Results::default()));
    let observed = Rc::clone(&results);
    plan.observer = Some(Box::new(move |record: &UrlRecord| {
        observed.borrow_mut().add(record);
    }));
    let core = Core::with_logs(&settings, logs, 1);
    let fetcher = Fetcher::new(core.clone(), &settings, plan, 0).map_err(failure)?;
    let summary = block_on(async {
        let mut signals = Signals::new()
            .context("cannot wait for signals")
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        follow(&fetcher, screen, &mut signals, output).await
    });
    core.log().flush();
    let Some(summary) = summary? else {
        return Ok(());
    };
    let results = results.take();
    let gates = admin::gate_list(&core, summary::MAX_HOSTS);
    summary::finish(args, summary, &results, gates, output)
}

/// Fetches everything, and shows how far it is. After the first signal requests in flight are finished;
/// the second ends them at once. There is no summary if the reader of stdout has gone.
async fn follow(
    fetcher: &Fetcher,
    mut screen: Screen,
    signals: &mut Signals,
    output: &Output,
) -> Result<Option<FetchSummary>, Failure> {
    let stop = Notify::new();
    let mut fetching = pin!(fetcher.run(stop.notified()));
    let mut ticks = tokio::time::interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_stopping = false;
    let ended = loop {
        tokio::select! {
            ended = &mut fetching => break Some(ended),
            _ = ticks.tick() => screen.update(fetcher.progress(), output),
            _ = signals.next() => match is_stopping {
                true => break None,
                false => {
                    is_stopping = true;
                    screen.stopping(output);
                    stop.notify_one();
                }
            },
        }
    };
    screen.clear();
    match ended {
        Some(Err(FetchError::Lines(error))) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(None)
        }
        Some(summary) => summary.map(Some).map_err(failure),
        None => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// Countdowns are in whole seconds.
const REDRAW: Duration = Duration::from_millis(250);

fn failure(error: FetchError) -> Failure {
    let exit = match &error {
        FetchError::State { .. }
        | FetchError::LinesFile(_)
        | FetchError::Folder(_)
        | FetchError::UserAgent => Exit::Usage,
        _ => Exit::Failed,
    };
    let hint = match &error {
        FetchError::LinesFile(JsonlError::OtherFetch { .. }) => {
            "a state belongs to one file of lines; choose another file for `--jsonl`"
        }
        FetchError::Queue(_) | FetchError::Lines(_) => "free some space and go on with `--resume`",
        _ => return Failure::new(exit, error),
    };
    Failure::new(exit, error).with_hint(hint)
}

impl FetchArgs {
    /// The settings of `[fetch]` that flags name.
    fn flags(&self) -> Vec<Flag> {
        let (crawl, requests) = (&self.crawl, &self.requests);
        let flag = |name: &str, setting: &str, value: String| Flag {
            name: format!("--{name}"),
            path: format!("fetch.{setting}"),
            value,
        };
        let flags = [
            ("depth", &crawl.depth),
            ("concurrency", &requests.concurrency),
            ("user_agent", &requests.user_agent),
            ("max_body", &requests.max_body),
            ("max_redirects", &requests.max_redirects),
            ("give_up_after", &requests.give_up_after),
        ];
        let given = flags.into_iter().filter_map(|(setting, value)| {
            Some(flag(&setting.replace('_', "-"), setting, value.clone()?))
        });
        let no_robots = requests
            .no_robots
            .then(|| flag("no-robots", "robots", "false".to_owned()));
        given.chain(no_robots).collect()
    }
}
