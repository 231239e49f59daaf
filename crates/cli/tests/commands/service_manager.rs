//! What `tidegate serve` sends to the service manager that started it.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command};

use crate::support::tidegate;

#[test]
fn serve_says_when_it_is_ready_reloads_works_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut server = tidegate("serve --listen 127.0.0.1:0 --admin 127.0.0.1:0")
        .current_dir(folder.path())
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "20000")
        .env_remove("WATCHDOG_PID")
        .spawn()
        .unwrap();
    assert!(next_state(&socket).starts_with("READY=1\nSTATUS=listening on http://127.0.0.1:"));
    while receive(&socket) != PING {}
    signal(&server, "HUP");
    assert!(next_state(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(next_state(&socket).starts_with("READY=1\n"));
    while receive(&socket) != PING {}
    signal(&server, "TERM");
    // The default of `server.drain`, and half a minute.
    assert!(next_state(&socket).starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC=60000000\n"));
    assert!(server.wait().unwrap().success());
}

const PING: &str = "WATCHDOG=1";

/// The next message that is no ping.
fn next_state(socket: &UnixDatagram) -> String {
    loop {
        let message = receive(socket);
        if message != PING {
            return message;
        }
    }
}

fn receive(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

fn signal(server: &Child, name: &str) {
    let pid = server.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.unwrap().success());
}
