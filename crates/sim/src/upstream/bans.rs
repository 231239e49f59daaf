//! Bans of clients that exceed the limit too often.

use std::collections::VecDeque;

use policy::time::Timestamp;

use super::settings::Ban;

#[derive(Clone, Debug, Default)]
pub(super) struct Bans {
    clients: Vec<ClientRecord>,
}

#[derive(Clone, Debug, Default)]
struct ClientRecord {
    excesses: VecDeque<Timestamp>,
    banned_until: Timestamp,
    bans: u64,
}

impl Bans {
    pub(super) fn is_banned(&self, client: usize, now: Timestamp) -> bool {
        self.clients
            .get(client)
            .is_some_and(|record| now < record.banned_until)
    }

    /// Records an excess. The last one allowed by `ban` bans the client and resets its count.
    pub(super) fn record_excess(&mut self, ban: &Ban, client: usize, now: Timestamp) {
        if self.clients.len() <= client {
            self.clients.resize_with(client + 1, ClientRecord::default);
        }
        let record = &mut self.clients[client];
        let is_old = |at: &Timestamp| now.since(*at) >= ban.within;
        while record.excesses.front().is_some_and(is_old) {
            record.excesses.pop_front();
        }
        record.excesses.push_back(now);
        if record.excesses.len() >= ban.excesses as usize {
            record.excesses.clear();
            record.banned_until = now + ban.length;
            record.bans += 1;
        }
    }

    /// The number of bans so far.
    pub(super) fn count(&self) -> u64 {
        self.clients.iter().map(|record| record.bans).sum()
    }

    /// The number of bans of the client that was banned most often.
    pub(super) fn max_of_a_client(&self) -> u64 {
        self.clients
            .iter()
            .map(|record| record.bans)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BAN: Ban = Ban {
        excesses: 3,
        within: Duration::from_secs(10),
        length: Duration::from_secs(60),
    };

    fn bans_after(seconds: &[u64]) -> Bans {
        let mut bans = Bans::default();
        for second in seconds {
            bans.record_excess(&BAN, 1, Timestamp::from_secs(*second));
        }
        bans
    }

    #[test]
    fn bans_the_client_after_the_configured_excesses() {
        let bans = bans_after(&[0, 5, 9]);
        let banned = |client, second| bans.is_banned(client, Timestamp::from_secs(second));
        assert!(banned(1, 9) && banned(1, 68));
        assert!(!banned(1, 69) && !banned(0, 9) && !banned(2, 9));
        assert_eq!(bans.count(), 1);
    }

    #[test]
    fn ignores_old_excesses_and_counts_from_zero_after_a_ban() {
        assert_eq!(bans_after(&[0, 5, 10, 15, 20]).count(), 0);
        assert_eq!(bans_after(&[0, 5, 9, 10, 11]).count(), 1);
        assert_eq!(bans_after(&[0, 5, 9, 10, 11, 12]).count(), 2);
    }

    #[test]
    fn counts_the_bans_of_each_client() {
        let mut bans = bans_after(&[0, 1, 2, 3, 4, 5]);
        for second in [6, 7, 8] {
            bans.record_excess(&BAN, 0, Timestamp::from_secs(second));
        }
        assert_eq!((bans.count(), bans.max_of_a_client()), (3, 2));
        assert_eq!(Bans::default().max_of_a_client(), 0);
    }
}
