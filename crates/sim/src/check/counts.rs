//! What was sent and what came of it, counted a second time.

use super::{Found, Promise};
use crate::measure::{Class, Figures};
use crate::simulate::{Sight, What};

#[derive(Debug)]
pub(super) struct Counts {
    sent: u64,
    accepted: u64,
    refused: u64,
    failed: u64,
    under_way: u64,
    accepted_by_client: Vec<u64>,
}

impl Counts {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            sent: 0,
            accepted: 0,
            refused: 0,
            failed: 0,
            under_way: 0,
            accepted_by_client: vec![0; clients],
        }
    }

    pub(super) fn add(&mut self, sight: &Sight<'_>) {
        match sight.what {
            What::Waits { .. } => {}
            What::Sent { .. } => {
                self.sent += 1;
                self.under_way += 1;
            }
            What::Ended { class, .. } => {
                self.under_way -= 1;
                match class {
                    Class::Accepted => {
                        self.accepted += 1;
                        self.accepted_by_client[sight.client] += 1;
                    }
                    Class::Refused => self.refused += 1,
                    Class::Failed => self.failed += 1,
                }
            }
        }
    }

    pub(super) fn accepted_by_client(&self) -> &[u64] {
        &self.accepted_by_client
    }

    pub(super) fn compare(&self, figures: &Figures, found: &mut Found) {
        let seen = [self.sent, self.accepted, self.refused, self.failed];
        let told = [
            figures.sent,
            figures.accepted,
            figures.refused,
            figures.failed,
        ];
        found.expect(seen == told, Promise::FiguresAddUp, || {
            format!("sent, accepted, refused, failed were {seen:?}, figures say {told:?}")
        });
        let ended = figures.accepted + figures.refused + figures.failed;
        found.expect(
            figures.sent == ended + self.under_way,
            Promise::FiguresAddUp,
            || {
                format!(
                    "{} sent, {ended} ended, {} under way",
                    figures.sent, self.under_way
                )
            },
        );
        let ratios = [figures.refused_ratio, figures.jain];
        let are_ratios = ratios
            .iter()
            .flatten()
            .all(|ratio| (0.0..=1.0 + 1e-9).contains(ratio));
        found.expect(are_ratios, Promise::FiguresAddUp, || format!("{ratios:?}"));
    }
}
