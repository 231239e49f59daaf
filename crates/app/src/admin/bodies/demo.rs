//! The body of the call about the demo's guided tour.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The guided tour of `tidegate demo`: what is happening now, and every step
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemoTour {
    /// The number of the step that is shown, counted from 1
    pub step: u32,
    /// How many steps there are
    pub of: u32,
    /// The title of the step that is shown; after the last one, of the pause before the next round
    pub title: String,
    /// What happens or happened, and why it matters
    pub text: String,
    /// The page that shows it
    pub link: DemoLink,
    /// The number of the round, counted from 1: the script plays again after a pause
    pub round: u32,
    /// Since the start of this round
    pub elapsed_ms: u64,
    /// How long the script of a round takes
    pub total_ms: u64,
    /// When the next round starts, counted from the start of this one
    pub next_round_ms: u64,
    /// Every step in order
    pub steps: Vec<DemoStep>,
}

/// A step of the tour
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemoStep {
    /// Its number, counted from 1
    pub n: u32,
    /// Its title
    pub title: String,
    /// What happens or happened, and why it matters; before that, what is planned
    pub text: String,
    /// The page that shows it
    pub link: DemoLink,
    /// Whether it has happened
    pub state: DemoStepState,
}

/// A page of the console
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DemoLink {
    /// Its path
    #[schema(example = "/gates/polite/only")]
    pub path: String,
    /// What it shows
    #[schema(example = "gate polite/only")]
    pub label: String,
}

words! {
    /// Whether a step of the tour has happened
    DemoStepState {
        /// It happened
        Done = "done",
        /// It is happening, or is due
        Now = "now",
        /// It is planned for later, or did not happen in this round
        Later = "later",
    }
}
