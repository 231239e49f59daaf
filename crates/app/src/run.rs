//! `tidegate run`: one command per item, paced by the failure queue.

pub mod rules;
