//! The admin API over TLS: its certificate, its cookie, and the client of the commands.

use std::net::SocketAddr;
use std::path::Path;

use app::admin::bodies::GateSort;
use app::admin::client::{Client, ClientError, ServerTrust};
use app::tls::Certificates;

use crate::support::{Running, ask};

/// A certificate of this name that signs itself; its files, and the certificate.
fn certify(folder: &Path, name: &str) -> (String, Certificates) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let settings = format!(
        "admin_tls = {{ cert = \"file:{}\", key = \"file:{}\" }}\n",
        cert.display(),
        key.display()
    );
    let certificate = Certificates::from_pem(made.cert.pem().as_bytes()).unwrap();
    (settings, certificate)
}

fn gates(client: &Client) -> Result<(), ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let listed = runtime
        .unwrap()
        .block_on(client.gates(GateSort::Admitted, 1));
    listed.map(drop)
}

#[test]
fn the_client_accepts_the_certificate_of_the_settings_and_no_other() {
    let files = tempfile::tempdir().unwrap();
    // A name that no client asks for.
    let (settings, certificate) = certify(files.path(), "gate.example.com");
    let (running, _folder) = Running::new(&settings);
    let at = |certificate: Option<Certificates>| {
        let trust = ServerTrust {
            certificate,
            ..ServerTrust::default()
        };
        let url = running.admin().url();
        assert!(url.starts_with("https://"), "{url}");
        Client::new(&url, running.token.clone(), trust).unwrap()
    };
    gates(&at(Some(certificate.clone()))).unwrap();
    let (_, other) = certify(files.path(), "gate.example.com");
    for wrong in [None, Some(other)] {
        let refused = gates(&at(wrong)).unwrap_err();
        assert!(matches!(refused, ClientError::NoTls { .. }), "{refused}");
    }
    // By the address of the settings.
    let trust = ServerTrust {
        certificate: Some(certificate),
        ..ServerTrust::default()
    };
    let address: SocketAddr = running.address();
    gates(&Client::at(address, running.token.clone(), trust)).unwrap();
    // Without TLS, the answer says what is wrong.
    let plain = Client::at(address, running.token.clone(), ServerTrust::default());
    let refused = gates(&plain).unwrap_err().to_string();
    assert!(refused.contains("this port speaks TLS"), "{refused}");
    let answer = ask(address, "GET", "/healthz", &[], "");
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["reason"], "bad_request");
}

#[test]
fn a_client_of_tls_gets_no_answer_from_a_plain_listener() {
    let (running, _folder) = Running::new("");
    let url = running.admin().url().replace("http://", "https://");
    let client = Client::new(&url, running.token.clone(), ServerTrust::default()).unwrap();
    let refused = gates(&client).unwrap_err();
    assert!(matches!(refused, ClientError::NoTls { .. }), "{refused}");
}
