//! `tidegate demo`: a live view, and a summary at its end.

mod draw;
mod summary;

use std::time::Duration;

use app::demo::{Demo, DemoView};
use clap::Args;

use super::Failure;
use super::stopping::Stopping;
use crate::args::{self, NoConfig};
use crate::exit::Exit;
use crate::output::{Live, Output};

/// Watch everything that Tidegate does, within a minute
///
/// Starts mock upstreams, a gateway that is not given their limits, clients
/// that send as fast as they get responses, operations and a job. Prints the
/// console's address, where a guided tour says what happens; shows what each
/// gate has learned and what callers wait for, and a summary at the end. Listens
/// on free ports of this machine and leaves no files behind.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Stop after this time [default: on a terminal at Ctrl-C, otherwise 60s]
    #[arg(long = "for", value_name = "DURATION", value_parser = args::duration, allow_hyphen_values = true)]
    length: Option<Duration>,

    /// Port of the gateway; 0 takes any free port
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = port, allow_hyphen_values = true)]
    port: u16,

    #[command(flatten)]
    pub(crate) file: NoConfig,
}

fn port(text: &str) -> Result<u16, String> {
    policy::setting::whole(text, 0, u16::MAX)
}

const EXAMPLES: &str = "\
On a terminal the picture is redrawn in place. Elsewhere a block is printed
every five seconds; with --quiet only the summary, with --json only the summary
as JSON.

After a minute the script of the tour rests, and plays again every 90 seconds.

The summary compares with naive retries: the simulator runs as many clients
against the same upstreams for the same virtual time.

Examples:
  tidegate demo
  tidegate demo --for 30s --port 7070
  tidegate demo --for 60s --json";

pub(super) fn run(args: &DemoArgs, output: &Output) -> Result<(), Failure> {
    let mut stopping = Stopping::new()?;
    let demo = Demo::start(args.port)
        .map_err(|error| Failure::new(Exit::Failed, error).with_hint(PORT_HINT))?;
    let mut screen = Screen::new(output);
    let length = args.length.or_else(|| screen.default_length());
    let stop = stopping.watch(length, screen.interval(), || {
        screen.show(&demo.view(), output);
    });
    screen.close(&demo.view(), output);
    // After a second signal there is no summary.
    let outcome = stopping.finish(move || demo.finish()).unwrap_or_default();
    if let Some(outcome) = outcome {
        match output.is_json() {
            true => output.json_line(&summary::json(&outcome))?,
            false => output.text(&summary::text(&outcome))?,
        }
    }
    stop.result()
}

const PORT_HINT: &str =
    "another program may use that port; without `--port` any free port is taken";

/// How the view is shown.
enum Screen {
    /// Redrawn in place.
    Live(Live),
    /// One below the other; the time of the last one selects the events that are new.
    Plain(Duration),
    /// Not at all.
    Hidden,
}

impl Screen {
    fn new(output: &Output) -> Self {
        if output.is_json() || output.is_quiet() {
            return Self::Hidden;
        }
        output
            .live()
            .map_or(Self::Plain(Duration::ZERO), Self::Live)
    }

    /// Only a person at a terminal can press Ctrl-C.
    fn default_length(&self) -> Option<Duration> {
        match self {
            Self::Live(_) => None,
            Self::Plain(_) | Self::Hidden => Some(Duration::from_secs(60)),
        }
    }

    fn interval(&self) -> Duration {
        match self {
            Self::Live(_) => Duration::from_millis(500),
            Self::Plain(_) | Self::Hidden => Duration::from_secs(5),
        }
    }

    /// Errors are ignored: if stdout was closed the demo goes on, and the summary reports any other
    /// problem.
    fn show(&mut self, view: &DemoView, output: &Output) {
        match self {
            Self::Live(live) => _ = live.draw(&draw::frame(view, live.canvas())),
            Self::Plain(last) => {
                _ = output.text(&draw::block(view, *last));
                *last = view.elapsed;
            }
            Self::Hidden => {}
        }
    }

    /// Shows the last view, which the summary is about.
    fn close(&mut self, view: &DemoView, output: &Output) {
        if let Self::Live(_) = self {
            self.show(view, output);
        }
    }
}
