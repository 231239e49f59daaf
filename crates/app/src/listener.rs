//! Listening, for the gateway and the admin API alike.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Listens on `address`, without blocking. A restart need not wait until connections of the last
/// process are forgotten.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connections that wait to be accepted: enough for a fleet of clients that starts at once. The
/// system may allow fewer (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// The URL of a listener at `address`, without a path.
pub(crate) fn url(address: SocketAddr, is_tls: bool) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn as_many_connections_wait_to_be_accepted_as_the_system_allows() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        // One that finds no room is tried again after a second, and is not connected before.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(900));
        crate::descriptors::raise_limit();
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let most = most.trim().parse().unwrap();
        let count = usize::try_from(BACKLOG).unwrap().min(most);
        // Those of the test itself, too.
        let count = count.min(crate::descriptors::limit() - 100);
        let clients: Result<Vec<_>, _> = (0..count).map(connect).collect();
        assert_eq!(clients.unwrap().len(), count);
    }
}
