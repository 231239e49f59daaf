//! The part of a run that passes messages between the nodes of fleets and their stores.
//!
//! Every call ends in exactly one of two ways: its reply arrives, or the node gives up on it after a
//! fixed time. Which one is known as soon as a message is lost, so there is no timer for each call.

use std::sync::Arc;

use policy::fleet::{Notice, Reply};
use policy::random::Random;
use policy::time::Timestamp;

use super::{Event, Run};
use crate::client::{Client, Message};
use crate::fleet::{Delivery, FleetSettings, REPLY_TIMEOUT, Store};
use crate::scenario::Scenario;

/// A fleet of the run.
#[derive(Debug)]
pub(super) struct Fleet {
    settings: FleetSettings,
    store: Store,
    /// The number of the client that is its first node.
    first: usize,
}

/// What the run knows about a client besides the client itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// As what the upstream sees it: all nodes of a fleet are one.
    pub(super) account: usize,
    /// The fleet it belongs to, and its number there, counted from 1.
    fleet: Option<(usize, u32)>,
}

/// All clients of a run, node by node, and their fleets.
#[derive(Debug)]
pub(super) struct Senders {
    pub(super) clients: Vec<Client>,
    pub(super) seats: Vec<Seat>,
    pub(super) fleets: Vec<Fleet>,
}

impl Senders {
    /// Stores draw from streams after those of all clients.
    pub(super) fn new(scenario: &Scenario, mut stream: impl FnMut() -> Random) -> Self {
        let mut senders = Self {
            clients: Vec::new(),
            seats: Vec::new(),
            fleets: Vec::new(),
        };
        let mut stores = Vec::new();
        for group in &scenario.clients {
            let shared = group.shared().map(Arc::new);
            for _ in 0..group.count {
                let account = senders.clients.len();
                let fleet = group.fleet.as_ref().zip(shared.as_ref());
                for number in 1..=group.fleet.as_ref().map_or(1, |fleet| fleet.nodes) {
                    let client = Client::new(group, shared.as_ref(), stream());
                    senders.clients.push(client);
                    senders.seats.push(match fleet {
                        Some(_) => Seat {
                            account,
                            fleet: Some((stores.len(), number)),
                        },
                        None => Seat {
                            account: senders.seats.len(),
                            fleet: None,
                        },
                    });
                }
                stores.extend(fleet.map(|(settings, shared)| (settings, shared.fleet, account)));
            }
        }
        for (settings, shared, first) in stores {
            senders.fleets.push(Fleet {
                store: Store::new(&settings.store, shared, stream()),
                settings: settings.clone(),
                first,
            });
        }
        senders
    }
}

impl Fleet {
    pub(super) fn calls(&self) -> u64 {
        self.store.calls()
    }

    /// When nodes may start or stop, by client.
    fn changes(&self) -> impl Iterator<Item = (Timestamp, usize)> + '_ {
        self.settings.down.iter().flat_map(move |cut| {
            let numbers = cut.nodes.first..=cut.nodes.last.min(self.settings.nodes);
            let clients = numbers.map(|number| self.first + number as usize - 1);
            clients.flat_map(|client| [(cut.from, client), (cut.to, client)])
        })
    }
}

impl Run<'_> {
    /// Schedules the starts and stops of nodes.
    pub(super) fn schedule_nodes(&mut self) {
        let changes = self.fleets.iter().flat_map(Fleet::changes);
        let mut changes: Vec<_> = changes.filter(|(at, _)| *at < Timestamp::MAX).collect();
        changes.sort_unstable();
        changes.dedup();
        for (at, client) in changes {
            match at {
                Timestamp::ZERO => self.change_node(client, at),
                at => self.queue.push(at, Event::NodeChange { client }),
            }
        }
    }

    /// A node starts or stops, unless it continues.
    pub(super) fn change_node(&mut self, client: usize, now: Timestamp) {
        let Some((fleet, number)) = self.seats[client].fleet else {
            return;
        };
        let is_up = self.fleets[fleet].settings.is_up(number, now);
        let Some(node) = self.clients[client].node() else {
            return;
        };
        match (node.is_up(), is_up) {
            (true, false) => node.stop(),
            (false, true) => node.start(now),
            _ => return,
        }
        self.send_all(client, now);
    }

    /// Makes the call of a node that is due, and schedules the next one.
    pub(super) fn attend_node(&mut self, client: usize, now: Timestamp) {
        let Some(node) = self.clients[client].node() else {
            return;
        };
        let message = node.call(client, now);
        if let Some(at) = node.set_wake_up(now) {
            self.queue.push(at, Event::NodeWakeUp { client });
        }
        if let Some(message) = message {
            self.deliver_call(Box::new(message), now);
        }
    }

    pub(super) fn wake_node(&mut self, client: usize, now: Timestamp) {
        let node = self.clients[client].node();
        if node.is_some_and(|node| node.take_wake_up(now)) {
            self.send_all(client, now);
        }
    }

    fn deliver_call(&mut self, message: Box<Message>, now: Timestamp) {
        let gives_up_at = message.sent_at + REPLY_TIMEOUT;
        match self.delivery(message.client, now) {
            Delivery::At(at) if at < gives_up_at => self.queue.push(at, Event::Call(message)),
            _ => self.queue.push(gives_up_at, Event::NoReply(message)),
        }
    }

    /// A call arrives at the store.
    pub(super) fn answer_call(&mut self, message: Box<Message>, now: Timestamp) {
        let gives_up_at = message.sent_at + REPLY_TIMEOUT;
        let Some((fleet, number)) = self.seats[message.client].fleet else {
            return;
        };
        let store = &mut self.fleets[fleet].store;
        let Some((reply, notice)) = store.handle(message.sender, &message.call, now) else {
            self.queue.push(gives_up_at, Event::NoReply(message));
            return;
        };
        if let Some(on_call) = &mut self.on_call {
            on_call(number, message.sent_at);
        }
        match self.delivery(message.client, now) {
            Delivery::At(at) if at < gives_up_at => {
                self.queue.push(at, Event::Reply(message, Box::new(reply)));
            }
            _ => self.queue.push(gives_up_at, Event::NoReply(message)),
        }
        if let Some(notice) = notice {
            self.publish(fleet, notice, now);
        }
    }

    fn publish(&mut self, fleet: usize, notice: Notice, now: Timestamp) {
        let first = self.fleets[fleet].first;
        let nodes = self.fleets[fleet].settings.nodes as usize;
        for client in first..first + nodes {
            if let Delivery::At(at) = self.delivery(client, now) {
                self.queue.push(at, Event::Notice { client, notice });
            }
        }
    }

    pub(super) fn take_reply(&mut self, message: &Message, reply: &Reply, now: Timestamp) {
        if let Some(node) = self.clients[message.client].node() {
            node.replied(message, reply, now);
        }
        self.record_state(message.client, now);
        self.send_all(message.client, now);
    }

    pub(super) fn give_up_call(&mut self, message: &Message, now: Timestamp) {
        if let Some(node) = self.clients[message.client].node() {
            node.unanswered(message, now);
        }
        self.attend_node(message.client, now);
    }

    pub(super) fn take_notice(&mut self, client: usize, notice: &Notice, now: Timestamp) {
        if let Some(node) = self.clients[client].node() {
            node.noticed(notice, now);
        }
        self.record_state(client, now);
        self.send_all(client, now);
    }

    fn delivery(&mut self, client: usize, now: Timestamp) -> Delivery {
        match self.seats[client].fleet {
            Some((fleet, number)) => self.fleets[fleet].store.deliver(number, now),
            None => Delivery::Lost,
        }
    }
}
