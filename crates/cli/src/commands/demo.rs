//! The demo, from its first picture to what it came to.

mod draw;
mod summary;

use std::time::Duration;

use app::demo::{Demo, Picture};
use policy::setting;
use sim::written::problem::{Place, Problem};

use super::stopping::{Stop, Stopping};
use super::{Failure, problems, unwritten};
use crate::args::DemoArgs;
use crate::exit::Exit;
use crate::output::{Live, Output};

pub(crate) fn demo(args: &DemoArgs, is_json: bool, output: &Output) -> Result<(), Failure> {
    let written = length(args, is_json, output)?;
    let mut stopping = Stopping::new().map_err(|error| {
        let error = anyhow::Error::new(error).context("cannot wait for signals");
        Failure::new(Exit::Failed, error)
    })?;
    let demo = Demo::start(args.port)
        .map_err(|error| Failure::new(Exit::Failed, error).with_hint(PORT_HINT))?;
    let mut screen = Screen::new(is_json, output);
    let length = written.or_else(|| screen.usual_length());
    let stop = stopping.watch(length, screen.every(), || {
        screen.show(&demo.picture(), output);
    });
    screen.close(&demo.picture(), output);
    // Somebody who does not want to wait gets no summary.
    let outcome = stopping.finish(move || demo.finish()).unwrap_or_default();
    if let Some(outcome) = outcome {
        let text = match is_json {
            true => summary::json(&outcome),
            false => summary::text(&outcome),
        };
        output.print(text.as_bytes()).or_else(unwritten)?;
    }
    match stop {
        Stop::Elapsed | Stop::Terminated => Ok(()),
        Stop::Interrupted => Err(Failure::silent(Exit::Interrupted)),
    }
}

const PORT_HINT: &str =
    "another program may have that port; without `--port` any that is free is taken";

fn length(args: &DemoArgs, is_json: bool, output: &Output) -> Result<Option<Duration>, Failure> {
    let Some(text) = args.length.as_deref() else {
        return Ok(None);
    };
    setting::positive(text).map(Some).map_err(|expected| {
        let place = Place::Flag("--for".to_owned());
        let problem = Problem::expected(&place, "", text, expected);
        problems::failure(None, vec![problem], HINT, is_json, output)
    })
}

const HINT: &str = "`tidegate demo --for 30s` ends after half a minute";

/// Where pictures go.
enum Screen {
    /// Drawn in place.
    Live(Live),
    /// One after the other; when the last one was is kept, to tell only what is new.
    Plain(Duration),
    /// Nowhere.
    Dark,
}

impl Screen {
    fn new(is_json: bool, output: &Output) -> Self {
        if is_json || output.is_quiet() {
            return Self::Dark;
        }
        output
            .live()
            .map_or(Self::Plain(Duration::ZERO), Self::Live)
    }

    /// Nobody presses Ctrl-C where nobody looks.
    fn usual_length(&self) -> Option<Duration> {
        match self {
            Self::Live(_) => None,
            Self::Plain(_) | Self::Dark => Some(Duration::from_secs(60)),
        }
    }

    fn every(&self) -> Duration {
        match self {
            Self::Live(_) => Duration::from_millis(500),
            Self::Plain(_) | Self::Dark => Duration::from_secs(5),
        }
    }

    /// A picture that cannot be shown is no reason to end: whoever closed stdout has seen enough,
    /// and the summary will say what else is wrong.
    fn show(&mut self, picture: &Picture, output: &Output) {
        match self {
            Self::Live(live) => _ = live.draw(&draw::frame(picture, live.canvas())),
            Self::Plain(last) => {
                _ = output.print(draw::block(picture, *last).as_bytes());
                *last = picture.elapsed;
            }
            Self::Dark => {}
        }
    }

    /// The last picture: the one that the summary is about.
    fn close(&mut self, picture: &Picture, output: &Output) {
        if let Self::Live(_) = self {
            self.show(picture, output);
        }
    }
}
