//! Says to the service manager of the system how far the server is: ready, reloading, stopping, and
//! that it still works.
//!
//! systemd gives the address of a socket in `NOTIFY_SOCKET`; each message is a datagram with lines such
//! as `READY=1` (sd_notify(3)). These few lines need no library. Without the variable nothing is sent,
//! and a message that cannot be sent is not reported: if systemd waits for one in vain, it says so
//! itself.

mod watchdog;

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::settings::Environment;

pub(crate) use watchdog::EventLoops;

/// The service manager that started this process, if one did that wants messages.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the variables `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID` name.
    pub(crate) fn new(environment: &impl Environment) -> Self {
        let address = environment.variable("NOTIFY_SOCKET");
        let address = address.and_then(|address| socket_address(&address));
        Self {
            socket: address.and_then(|address| Some((socket().ok()?, address))),
            watchdog: watchdog_timeout(environment),
        }
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// It reads its settings again; [`ServiceManager::ready`] follows.
    pub(crate) fn reloading(&self) {
        // systemd must know whether this answers the signal that it sent last.
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// It ends, within `limit`, which replaces the time that systemd waits by default.
    pub(crate) fn stopping(&self, limit: Duration) {
        let micros = limit.as_micros();
        self.send(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}\nSTATUS=finishing requests in flight"
        ));
    }

    /// It works.
    fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

fn socket() -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

/// A message may have to wait for others that systemd has not read yet, but the server does not depend
/// on it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A path, or a name in the abstract namespace, which is written with `@`.
fn socket_address(text: &str) -> Option<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = text.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name).ok();
    }
    SocketAddr::from_pathname(text).ok()
}

/// After which silence systemd restarts this process; none if it watches another one.
fn watchdog_timeout(environment: &impl Environment) -> Option<Duration> {
    let process = environment.variable("WATCHDOG_PID");
    if process.is_some_and(|process| process != std::process::id().to_string()) {
        return None;
    }
    let micros = environment.variable("WATCHDOG_USEC")?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|timeout| !timeout.is_zero())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// Variables, and no files.
    pub(super) struct Variables(BTreeMap<&'static str, String>);

    impl Variables {
        pub(super) fn new<const N: usize>(variables: [(&'static str, String); N]) -> Self {
            Self(variables.into())
        }
    }

    impl Environment for Variables {
        fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn variables(&self) -> Vec<(String, String)> {
            let variables = self.0.iter();
            variables
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect()
        }
    }

    /// The next message.
    pub(super) fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn sends_every_state_to_the_named_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let path = path.display().to_string();
        let manager = ServiceManager::new(&Variables::new([("NOTIFY_SOCKET", path)]));
        manager.ready("listening");
        assert_eq!(received(&socket), "READY=1\nSTATUS=listening");
        manager.reloading();
        let reloading = received(&socket);
        let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        assert!(micros.unwrap().parse::<u64>().unwrap() > 0, "{reloading}");
        manager.stopping(Duration::from_secs(40));
        let stopping = received(&socket);
        assert!(
            stopping.starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000\n"),
            "{stopping}"
        );
        manager.alive();
        assert_eq!(received(&socket), "WATCHDOG=1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sends_to_a_name_in_the_abstract_namespace() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("tidegate-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let name = format!("@{name}");
        let manager = ServiceManager::new(&Variables::new([("NOTIFY_SOCKET", name)]));
        manager.alive();
        assert_eq!(received(&socket), "WATCHDOG=1");
    }

    #[test]
    fn sends_nothing_without_a_socket() {
        let manager = ServiceManager::new(&Variables::new([]));
        assert!(manager.socket.is_none());
        manager.ready("listening");
        let gone = ("NOTIFY_SOCKET", "/nonexistent/notify".to_owned());
        ServiceManager::new(&Variables::new([gone])).ready("listening");
    }

    #[test]
    fn watchdog_of_another_process_is_not_ours() {
        let ours = std::process::id().to_string();
        let timeout = |process: &str, micros: &str| {
            let variables = Variables::new([
                ("WATCHDOG_PID", process.to_owned()),
                ("WATCHDOG_USEC", micros.to_owned()),
            ]);
            watchdog_timeout(&variables)
        };
        assert_eq!(timeout(&ours, "30000000"), Some(Duration::from_secs(30)));
        assert_eq!(timeout("1", "30000000"), None);
        for nonsense in ["0", "", "-1", "soon"] {
            assert_eq!(timeout(&ours, nonsense), None, "{nonsense}");
        }
        let any = Variables::new([("WATCHDOG_USEC", "1000000".to_owned())]);
        assert_eq!(watchdog_timeout(&any), Some(Duration::from_secs(1)));
    }
}
