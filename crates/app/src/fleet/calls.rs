//! Calls to the server of the fleet: one at a time, with a time limit, on a connection that is made again
//! after a failure.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use store::{FleetError, FleetServer, KeyCall, SyncReply};
use tidegate::fleet::{SharedCall, SharedGates};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::FleetHealth;
use super::worker::Shared;

/// The connection, and what was said on it.
pub(super) struct Calls {
    pub(super) shared: Rc<Shared>,
    pub(super) server: FleetServer,
    /// Whether this node has entered the fleet on the present connection.
    pub(super) is_joined: bool,
    /// Set by whatever notices that the connection has ended.
    pub(super) is_lost: Rc<Cell<bool>>,
    /// When the node has to say again that it is present.
    joins_at: Instant,
    /// The server's time of its last answer, and when that arrived.
    answered: Option<(u64, Instant)>,
    /// Keys whose messages arrive, and when they were last called about.
    subscribed: BTreeMap<String, Instant>,
    /// Consecutive calls without an answer in time.
    late: u32,
    /// Consecutive connections that failed.
    refused: u32,
}

impl Calls {
    pub(super) fn new(shared: Rc<Shared>, server: FleetServer, is_joined: bool) -> Self {
        Self {
            shared,
            server,
            is_joined,
            is_lost: Rc::default(),
            joins_at: Instant::now() + PRESENT_EVERY,
            answered: None,
            subscribed: BTreeMap::new(),
            late: 0,
            refused: 0,
        }
    }

    /// Makes calls for ever.
    pub(super) async fn run(&mut self) {
        loop {
            if self.is_lost.take() {
                self.disconnect();
            }
            let gates = self.shared.gates.clone();
            if !self.is_joined {
                answering(&gates, Duration::ZERO, self.rejoin()).await;
                continue;
            }
            tokio::select! {
                calls = gates.calls(FleetServer::MAX_KEYS) => self.sync(calls).await,
                () = sleep_until(self.joins_at) => {
                    self.is_joined = answering(&gates, MAX_CALL, self.join()).await;
                    self.unsubscribe().await;
                }
                () = self.shared.lost.notified() => {}
            }
        }
    }

    /// Enters the fleet again, or waits some time after a failure.
    async fn rejoin(&mut self) {
        if !self.join().await {
            let doublings = self.refused.min(2);
            self.refused += 1;
            sleep(self.shared.jittered(FIRST_RETRY * (1 << doublings))).await;
        }
    }

    /// Enters the fleet, or says again that this node is present.
    async fn join(&mut self) -> bool {
        let started = self.shared.now();
        let joined = timeout(MAX_JOIN, self.server.join()).await;
        match joined {
            Ok(Ok(_)) => {
                self.refused = 0;
                self.is_joined = true;
                // What was noticed was the end of the connection before.
                self.is_lost.set(false);
                self.joins_at = Instant::now() + PRESENT_EVERY;
                self.health().answered(self.shared.now());
                true
            }
            Ok(Err(error)) => {
                self.health().failed(started, error.to_string());
                self.disconnect();
                false
            }
            Err(_) => {
                self.health().failed(started, self.no_answer(MAX_JOIN));
                self.disconnect();
                false
            }
        }
    }

    async fn sync(&mut self, calls: Vec<SharedCall>) {
        let started = self.shared.now();
        let answer = match timeout(MAX_CALL, self.say(&calls)).await {
            Ok(answer) => answer.map_err(|error| {
                let is_broken = matches!(error, FleetError::Unreachable { .. });
                (error.to_string(), is_broken)
            }),
            Err(_) => {
                self.late += 1;
                Err((self.no_answer(MAX_CALL), self.late >= MAX_LATE))
            }
        };
        let gates = self.shared.gates.clone();
        match answer {
            Ok(reply) => {
                self.late = 0;
                self.answered = Some((reply.server_time, Instant::now()));
                apply(&gates, calls, &reply);
                self.health().answered(self.shared.now());
            }
            Err((problem, is_broken)) => {
                // If its clock was set, a deadline by the old one would never be met.
                self.answered = None;
                calls.into_iter().for_each(|call| gates.unanswered(call));
                self.health().failed(started, problem);
                if is_broken {
                    self.disconnect();
                }
            }
        }
    }

    async fn say(&mut self, calls: &[SharedCall]) -> Result<SyncReply, FleetError> {
        self.subscribe(calls).await?;
        let deadline = self.answered.map(|(server_time, at)| {
            let since = at.elapsed() + MAX_CALL;
            server_time.saturating_add(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
        });
        let calls: Vec<KeyCall> = calls
            .iter()
            .map(|call| KeyCall {
                key: call.key.clone(),
                settings: call.settings,
                call: call.call.clone(),
            })
            .collect();
        self.server.sync(&calls, deadline).await
    }

    /// Gets messages about these keys from now on.
    async fn subscribe(&mut self, calls: &[SharedCall]) -> Result<(), FleetError> {
        let now = Instant::now();
        let mut new = Vec::new();
        for call in calls {
            match self.subscribed.get_mut(&call.key) {
                Some(at) => *at = now,
                None => new.push(call.key.clone()),
            }
        }
        if !new.is_empty() {
            self.server.subscribe(&new).await?;
            self.subscribed
                .extend(new.into_iter().map(|key| (key, now)));
        }
        Ok(())
    }

    /// Gets no more messages about keys that were not used lately.
    async fn unsubscribe(&mut self) {
        let unused = self.subscribed.iter();
        let unused = unused.filter(|(_, at)| at.elapsed() >= UNUSED);
        let unused: Vec<String> = unused.map(|(key, _)| key.clone()).collect();
        self.subscribed.retain(|_, at| at.elapsed() < UNUSED);
        if self.is_joined && !unused.is_empty() {
            // If it fails, the connection has ended, and with it all subscriptions.
            _ = timeout(MAX_CALL, self.server.unsubscribe(&unused)).await;
        }
    }

    /// Gives up what this node has, so that others get it at once.
    pub(super) async fn release(&mut self) {
        if !self.is_joined {
            return;
        }
        let claims = self.shared.gates.claims(self.shared.lease);
        let keys: Vec<String> = claims.into_iter().map(|(key, _)| key).collect();
        let release = async {
            for keys in keys.chunks(FleetServer::MAX_KEYS) {
                self.server.release(keys).await?;
            }
            // Without keys, only the node leaves.
            match keys.is_empty() {
                true => self.server.release(&[]).await,
                false => Ok(()),
            }
        };
        // What is not released runs out with its lease.
        _ = timeout(MAX_RELEASE, release).await;
    }

    fn disconnect(&mut self) {
        self.server.disconnect();
        self.is_joined = false;
        self.late = 0;
        self.answered = None;
        self.subscribed.clear();
    }

    fn no_answer(&self, within: Duration) -> String {
        let (server, millis) = (self.server.address(), within.as_millis());
        format!("`{server}` does not answer within {millis} ms")
    }

    fn health(&self) -> &FleetHealth {
        &self.shared.health
    }
}

/// Does something that no call can be made beside. Once that takes longer than `grace`, calls get no
/// answer. Members have to know that it is missing: a key that says nothing is not degraded.
async fn answering<T>(gates: &SharedGates, grace: Duration, done: impl Future<Output = T>) -> T {
    tokio::select! {
        result = done => result,
        never = answer_nothing(gates, grace) => match never {},
    }
}

async fn answer_nothing(gates: &SharedGates, grace: Duration) -> Infallible {
    sleep(grace).await;
    loop {
        for call in gates.calls(FleetServer::MAX_KEYS).await {
            gates.unanswered(call);
        }
    }
}

fn apply(gates: &SharedGates, calls: Vec<SharedCall>, reply: &SyncReply) {
    for (call, reply) in calls.into_iter().zip(&reply.replies) {
        gates.replied(call, reply);
    }
}

/// A call that takes longer is late: nodes do not wait for a slow server, they do without it.
const MAX_CALL: Duration = Duration::from_millis(250);

/// So many late calls in a row end the connection, which may be dead without saying so.
const MAX_LATE: u32 = 4;

/// Connecting over TLS to another region takes less.
const MAX_JOIN: Duration = Duration::from_secs(3);

/// The wait after a connection that failed; doubles up to four times this.
const FIRST_RETRY: Duration = Duration::from_millis(250);

/// A node that is not seen for 30 s does not count as present.
const PRESENT_EVERY: Duration = Duration::from_secs(10);

/// Messages about keys are read for so long after the last call.
const UNUSED: Duration = Duration::from_secs(30);

/// What others wait for at most when this node leaves: less than the lease.
const MAX_RELEASE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use policy::fleet::NodeId;
    use tidegate::{Clock, Limiter};

    #[tokio::test(start_paused = true)]
    async fn gates_do_without_the_server_while_it_does_not_let_the_node_in() {
        let (interval, lease) = (Duration::from_millis(100), Duration::from_secs(2));
        let limiter = Limiter::builder()
            .clock(Clock::tokio())
            .fleet(NodeId(1), interval, lease)
            .build();
        let gates = limiter.shared_gates().unwrap();
        let degraded = async {
            while gates.tick().degraded == 0 {
                sleep(interval).await;
            }
        };
        tokio::select! {
            () = degraded => {}
            () = answering(&gates, MAX_CALL, sleep(MAX_JOIN)) => panic!("it waits for the server"),
            _ = limiter.acquire("key") => panic!("it has no share yet"),
        }
        let begin = Instant::now();
        assert_eq!(answering(&gates, MAX_CALL, async { 7 }).await, 7);
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
