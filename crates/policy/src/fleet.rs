//! Many nodes as one client: the rate of a key is shared through a store.
//!
//! Each node keeps a [`Member`] for each shared key. About every 100 ms it sends a [`Call`] to the
//! store, which answers with a [`Reply`]. The store runs one script for all nodes; [`Ledger`] is that
//! script in Rust, for tests and simulations. Nothing here does IO: a member says when its next call
//! is due and what it contains, and takes the reply.
//!
//! **Slots.** A key has one line of send times, `1/rate` apart. A reply reserves the next few for its
//! node: [`Slots`](crate::gate::Slots). The upstream therefore sees one evenly paced client, whatever the number of nodes.
//! The line never moves back to a slot that was given out, so none is given out twice, even if a message is lost.
//!
//! **Shares.** A node also has a share of the rate, by demand; all shares add up to at most one. It
//! bounds how many slots the node may hold. While the key is used far below its limit, replies are
//! *free*: no slots, the node paces itself by its share. And if the store does not answer, the share
//! is what the node continues with, *degraded*.
//!
//! **One controller.** The store makes one node the owner of the key. All nodes report what was
//! accepted and refused; the store adds it up; the owner gets the totals ([`Feedback`]), replays what
//! is new through the strategy of its gates, and writes a [`RateDecision`]. A new owner
//! gets a higher `fence`, and decisions with a lower one are ignored.
//!
//! **Epochs.** A refusal counts only if its request was sent in the present epoch. The first one
//! begins the next epoch and lowers the rate at once, before the owner decides. A slot keeps the
//! epoch it was reserved in.
//!
//! **Holds and the breaker** belong to the fleet too. A hold only grows. If enough nodes report that
//! their breakers opened, the breaker of the fleet opens; then one node at a time may send a probe.
//!
//! **Claims.** A store that was flushed, or replaced by an older replica, learns rate, epoch and
//! shares from the claims that nodes send along; for one lease it gives out no more than they claim.
//!
//! **Time.** Messages contain durations only; the clocks of nodes are never compared.

mod ledger;
mod member;
mod message;
mod owner;
mod settings;

pub use ledger::{Ledger, micros};
pub use member::{Member, MemberView};
pub use message::{
    BreakerReply, Call, Claim, Feedback, Left, NodeId, Notice, Ownership, ProbeResult,
    RateDecision, Refusal, RefusalKind, Reply, SlotBatch, Trip,
};
pub use settings::{FleetSettings, SharedSettings};
