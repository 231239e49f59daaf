//! Who exceeded the limit lately, and who is banned for it.

use std::collections::VecDeque;

use policy::time::Timestamp;

use super::settings::Ban;

#[derive(Clone, Debug, Default)]
pub(super) struct Bans {
    clients: Vec<Record>,
    count: u64,
}

#[derive(Clone, Debug, Default)]
struct Record {
    excesses: VecDeque<Timestamp>,
    banned_until: Timestamp,
}

impl Bans {
    pub(super) fn is_banned(&self, client: usize, now: Timestamp) -> bool {
        self.clients
            .get(client)
            .is_some_and(|record| now < record.banned_until)
    }

    /// Notes an excess. The one that is one too many bans the client, and the count begins anew.
    pub(super) fn exceed(&mut self, ban: &Ban, client: usize, now: Timestamp) {
        if self.clients.len() <= client {
            self.clients.resize_with(client + 1, Record::default);
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
            self.count += 1;
        }
    }

    /// How many bans there were.
    pub(super) fn count(&self) -> u64 {
        self.count
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

    fn exceeding(seconds: &[u64]) -> Bans {
        let mut bans = Bans::default();
        for second in seconds {
            bans.exceed(&BAN, 1, Timestamp::from_secs(*second));
        }
        bans
    }

    #[test]
    fn as_many_excesses_as_written_ban_that_client_and_no_other() {
        let bans = exceeding(&[0, 5, 9]);
        let banned = |client, second| bans.is_banned(client, Timestamp::from_secs(second));
        assert!(banned(1, 9) && banned(1, 68));
        assert!(!banned(1, 69) && !banned(0, 9) && !banned(2, 9));
        assert_eq!(bans.count(), 1);
    }

    #[test]
    fn old_excesses_are_forgotten_and_a_ban_starts_the_count_anew() {
        assert_eq!(exceeding(&[0, 5, 10, 15, 20]).count(), 0);
        assert_eq!(exceeding(&[0, 5, 9, 10, 11]).count(), 1);
        assert_eq!(exceeding(&[0, 5, 9, 10, 11, 12]).count(), 2);
    }
}
