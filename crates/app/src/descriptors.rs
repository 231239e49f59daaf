//! File descriptors: raises the limit of the process, and divides it among connections.
//!
//! Most systems start a process with a low soft limit and allow it to raise that. Below the limit,
//! connections of clients and of upstreams have a share each, and the rest is a reserve: for the admin
//! API, through which a person finds out what is wrong, for the store and for name lookups. Clients
//! that open ever more connections so find the gateway slow to accept, and never a gateway that cannot
//! send what it accepted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of the process to its hard limit, as far as the system allows.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Without it, the process works with fewer connections.
    _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// How many descriptors the process may have open now.
pub(crate) fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Says this error that the process, or the whole system, has no descriptor left? The standard library
/// has no kind for it.
pub(crate) fn are_used_up(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::MFILE | Errno::NFILE))
}

/// The shares of connections.
#[derive(Debug)]
pub(crate) struct Descriptors {
    clients: usize,
    upstreams: usize,
    admin: usize,
    used_by_upstreams: AtomicUsize,
}

/// A connection to an upstream, as long as it lives.
#[derive(Debug)]
pub(crate) struct UpstreamDescriptor(Arc<Descriptors>);

/// The reserve, of processes that may have many descriptors; of others it is a quarter.
const RESERVE: usize = 2048;

impl Descriptors {
    /// The shares of a process that may have `limit` descriptors open.
    pub(crate) fn new(limit: usize) -> Self {
        let reserve = RESERVE.min(limit / 4);
        let shared = limit - reserve;
        Self {
            admin: reserve / 2,
            clients: shared / 2,
            upstreams: shared - shared / 2,
            used_by_upstreams: AtomicUsize::new(0),
        }
    }

    /// How many connections of clients may be open.
    pub(crate) fn clients(&self) -> usize {
        self.clients
    }

    /// How many connections of the admin API may be open: half of the reserve, and at least one.
    pub(crate) fn admin(&self) -> usize {
        self.admin.max(1)
    }

    /// A descriptor for a connection to an upstream, if one is left.
    pub(crate) fn for_upstream(self: &Arc<Self>) -> Option<UpstreamDescriptor> {
        // Before the comparison, so that two threads cannot both take the last.
        let taken = UpstreamDescriptor(Arc::clone(self));
        let used = self.used_by_upstreams.fetch_add(1, Ordering::Relaxed);
        (used < self.upstreams).then_some(taken)
    }
}

impl Drop for UpstreamDescriptor {
    fn drop(&mut self) {
        self.0.used_by_upstreams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divides_the_limit_and_leaves_a_reserve() {
        for (limit, clients, upstreams, admin) in [
            (128, 48, 48, 16),
            (1024, 384, 384, 128),
            (10_001, 3976, 3977, 1024),
        ] {
            let descriptors = Descriptors::new(limit);
            let shares = (descriptors.clients, descriptors.upstreams);
            assert_eq!(shares, (clients, upstreams));
            assert_eq!(descriptors.admin(), admin);
        }
        Descriptors::new(usize::MAX);
        assert_eq!(Descriptors::new(0).clients, 0);
    }

    #[test]
    fn gives_as_many_descriptors_to_upstreams_as_their_share_and_again_when_returned() {
        let descriptors = Arc::new(Descriptors::new(8));
        let mut taken: Vec<_> = (0..3)
            .map(|_| descriptors.for_upstream().unwrap())
            .collect();
        for _ in 0..2 {
            assert!(descriptors.for_upstream().is_none());
        }
        taken.pop();
        assert!(descriptors.for_upstream().is_some());
    }
}
