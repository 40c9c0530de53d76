//! Sessions between two ends in memory, with authorities made for the test.

use crate::{Handshake, Protocols, Session, Settings, Tls, UnknownProtocol};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::symm::Cipher;
use openssl::x509::extension::BasicConstraints;
use openssl::x509::{X509, X509Name};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use testkit::TempDir;

/// A certificate and its key.
struct Identity {
    cert: X509,
    key: PKey<Private>,
}

/// The key of this name, generated once: that takes long.
fn key(name: &str) -> PKey<Private> {
    static KEYS: Mutex<BTreeMap<String, PKey<Private>>> = Mutex::new(BTreeMap::new());
    let generate = || PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
    KEYS.lock().unwrap().entry(name.to_string()).or_insert_with(generate).clone()
}

/// `version` as in X.509: 0 for the first.
fn identity(name: &str, by: Option<&Identity>, version: i32) -> Identity {
    let key = key(name);
    let mut subject = X509Name::builder().unwrap();
    subject.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    let subject = subject.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(version).unwrap();
    let serial = BigNum::from_u32(1 + name.len() as u32).unwrap().to_asn1_integer().unwrap();
    builder.set_serial_number(&serial).unwrap();
    builder.set_subject_name(&subject).unwrap();
    builder.set_issuer_name(by.map_or(&subject, |by| by.cert.subject_name())).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(2).unwrap()).unwrap();
    if by.is_none() {
        builder.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    }
    builder.sign(by.map_or(&key, |by| &by.key), MessageDigest::sha256()).unwrap();
    Identity { cert: builder.build(), key }
}

/// Files of a test: two authorities, and certificates by each.
struct Pki {
    dir: TempDir,
    ours: Identity,
    theirs: Identity,
}

impl Pki {
    fn new() -> Pki {
        let dir = TempDir::new("tls").unwrap();
        let (ours, theirs) = (identity("our CA", None, 2), identity("their CA", None, 2));
        let pki = Pki { dir, ours, theirs };
        pki.write("ca", &pki.ours.cert.to_pem().unwrap());
        pki.write("other-ca", &pki.theirs.cert.to_pem().unwrap());
        pki.issue("server", &identity("server", Some(&pki.ours), 2));
        pki.issue("client", &identity("client", Some(&pki.ours), 2));
        pki.issue("foreign", &identity("foreign", Some(&pki.theirs), 2));
        pki
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn issue(&self, name: &str, identity: &Identity) {
        self.write(&format!("{name}.cert"), &identity.cert.to_pem().unwrap());
        self.write(&format!("{name}.key"), &identity.key.private_key_to_pem_pkcs8().unwrap());
    }

    fn settings(&self, name: &str) -> Settings {
        Settings {
            private_key: Some(self.path(&format!("{name}.key"))),
            certificate: Some(self.path(&format!("{name}.cert"))),
            ca_cert: Some(self.path("ca")),
            ..Settings::default()
        }
    }
}

type Ends = (Session<UnixStream>, Session<UnixStream>);

/// Whether client and server complete their handshakes and exchange a byte each way, or the first error.
fn meet(client: &mut Tls, server: &mut Tls) -> Result<Ends, String> {
    meet_at("server", client, server)
}

/// A meeting with a remote of that name.
fn meet_at(remote: &str, client: &mut Tls, server: &mut Tls) -> Result<Ends, String> {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let text = |e: std::io::Error| e.to_string();
    let mut a = client.connect(near, remote.to_string()).map_err(text)?;
    let mut b = server.accept(far, "client".to_string()).map_err(text)?;
    loop {
        // The server first: its reason, not the alert that follows it.
        let there = server.handshake(&mut b).map_err(text)?;
        let here = client.handshake(&mut a).map_err(text)?;
        if (here, there) == (Handshake::Done, Handshake::Done) {
            break;
        }
    }
    assert_eq!(a.write(b"x").unwrap(), 1);
    assert_eq!(b.write(b"y").unwrap(), 1);
    let mut byte = [0];
    assert_eq!((b.read(&mut byte).map_err(text)?, byte), (1, *b"x"));
    assert_eq!((a.read(&mut byte).map_err(text)?, byte), (1, *b"y"));
    assert_eq!(a.read(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    Ok((a, b))
}

fn met(client: &Settings, server: &Settings) -> Result<Ends, String> {
    meet(&mut Tls::new(client.clone()), &mut Tls::new(server.clone()))
}

#[test]
fn protocols() {
    let all = |texts: &[&str]| texts.iter().map(|t| Protocols::parse(t)).collect::<Vec<_>>();
    let equal = all(&["TLSv1.2+", "TLSv1.2,TLSv1.3", " tlsv1.3\tTLSV1.2,", "TLSv1.2-TLSv1.3"]);
    assert!(equal.iter().all(|p| *p == Ok(Protocols::default())), "{equal:?}");
    for bad in ["", ",", "x", "TLSv1.3-TLSv1.2", "TLSv1.2 x", "+", "-", "TLSv1.2-", "SSLv3"] {
        assert!(Protocols::parse(bad).is_err(), "{bad}");
    }
    assert_eq!(Protocols::parse("TLSv1.2,y"), Err(UnknownProtocol("y".to_string())));
    let old: Vec<_> = Protocols::parse("TLSv1+").unwrap().deprecated().collect();
    assert_eq!(old, ["TLSv1", "TLSv1.1"]);
    assert_eq!(Protocols::default().deprecated().next(), None);
}

#[test]
fn the_corpus_of_protocols_is_replayed() {
    testkit::replay_corpus(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/protocols"), crate::fuzz::protocols);
}

#[test]
fn peers_need_certificates_that_chain_to_the_ca() {
    let pki = Pki::new();
    let (server, client) = (pki.settings("server"), pki.settings("client"));
    met(&client, &server).unwrap();
    let with = |change: fn(&mut Settings, &Pki), settings: &Settings| {
        let mut settings = settings.clone();
        change(&mut settings, &pki);
        settings
    };
    let other_ca: fn(&mut Settings, &Pki) = |s, pki| s.ca_cert = Some(pki.path("other-ca"));
    let no_ca: fn(&mut Settings, &Pki) = |s, _| s.ca_cert = Some("none".into());
    let only_13: fn(&mut Settings, &Pki) = |s, _| s.protocols = Some("TLSv1.3".to_string());
    let only_12: fn(&mut Settings, &Pki) = |s, _| s.protocols = Some("TLSv1.2".to_string());
    // OpenSSL has old versions at this security level only.
    let only_11: fn(&mut Settings, &Pki) = |s, _| {
        (s.protocols, s.ciphers) = (Some("TLSv1.1".to_string()), Some("HIGH:@SECLEVEL=0".to_string()));
    };
    let unknown: fn(&mut Settings, &Pki) = |s, _| s.protocols = Some("TLSv9".to_string());
    let aes256: fn(&mut Settings, &Pki) = |s, _| {
        (s.protocols, s.ciphers) = (Some("TLSv1.2".to_string()), Some("AES256-SHA".to_string()));
    };
    let aes128: fn(&mut Settings, &Pki) = |s, _| s.ciphers = Some("AES128-SHA".to_string());
    let bad_ciphers: fn(&mut Settings, &Pki) = |s, _| s.ciphers = Some("bogus".to_string());
    let chacha: fn(&mut Settings, &Pki) = |s, _| {
        s.ciphersuites = Some("TLS_CHACHA20_POLY1305_SHA256".to_string());
    };
    let aes_suite: fn(&mut Settings, &Pki) = |s, _| {
        (s.protocols, s.ciphersuites) =
            (Some("TLSv1.3".to_string()), Some("TLS_AES_128_GCM_SHA256".to_string()));
    };
    let foreign = pki.settings("foreign");
    for (client, server, refused) in [
        (foreign.clone(), server.clone(), Some("certificate verify failed")),
        (client.clone(), foreign.clone(), Some("certificate verify failed")),
        (client.clone(), with(other_ca, &server), Some("certificate verify failed")),
        (foreign.clone(), with(other_ca, &server), None),
        (foreign, with(no_ca, &server), None),
        (with(no_ca, &client), with(other_ca, &server), Some("certificate verify failed")),
        (with(only_12, &client), with(only_13, &server), Some("protocol")),
        (with(only_12, &client), server.clone(), None),
        (with(only_13, &client), server.clone(), None),
        (with(unknown, &client), with(only_13, &server), None),
        (with(only_11, &client), with(only_11, &server), None),
        (with(only_11, &client), server.clone(), Some("unsupported protocol")),
        (with(aes256, &client), with(aes128, &server), Some("no shared cipher")),
        (with(aes256, &client), with(bad_ciphers, &server), None),
        (with(aes_suite, &client), with(chacha, &server), Some("no shared cipher")),
        (with(chacha, &client), with(chacha, &server), None),
    ] {
        let result = met(&client, &server).err();
        let as_expected = match (&result, refused) {
            (None, None) => true,
            (Some(why), Some(part)) => why.starts_with("Protocol error: ") && why.contains(part),
            _ => false,
        };
        assert!(as_expected, "{result:?}, expected {refused:?}: {client:?}, {server:?}");
    }
}

/// rustls refuses both.
#[test]
fn certificates_of_old_authorities_work() {
    let pki = Pki::new();
    pki.issue("old", &identity("old", Some(&pki.ours), 0));
    met(&pki.settings("old"), &pki.settings("server")).unwrap();
    pki.issue("named", &identity("no host: at all", Some(&pki.ours), 2));
    met(&pki.settings("client"), &pki.settings("named")).unwrap();
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let pki = Pki::new();
    let mut server = Tls::new(pki.settings("server"));
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let mut session = server.accept(far, "client".to_string()).unwrap();
    let client = std::thread::spawn(move || {
        let mut builder = openssl::ssl::SslConnector::builder(openssl::ssl::SslMethod::tls()).unwrap();
        builder.set_verify(openssl::ssl::SslVerifyMode::NONE);
        // It learns of the refusal with its first read.
        if let Ok(mut stream) = builder.build().connect("server", near) {
            assert!(stream.read(&mut [0]).is_err());
        }
    });
    let why = loop {
        if let Err(e) = server.handshake(&mut session) {
            break e.to_string();
        }
    };
    assert_eq!(why, "Protocol error: peer did not return a certificate");
    drop(session);
    client.join().unwrap();
}

/// As in OVS: the host of the remote, which `--ssl-server-name` of 3.7 replaces.
#[test]
fn clients_name_the_server() {
    let pki = Pki::new();
    let mut server = Tls::new(pki.settings("server"));
    let named = |name: &str| Settings { server_name: Some(name.to_string()), ..pki.settings("client") };
    for (settings, remote, expected) in [
        (pki.settings("client"), "ssl:db.example:6640", Some("db.example")),
        (pki.settings("client"), "ssl:127.0.0.1:6640", None),
        (pki.settings("client"), "ssl:[::1]:6640", None),
        (named("gateway.example"), "ssl:127.0.0.1:6640", Some("gateway.example")),
        (named("gateway.example"), "ssl:db.example:6640", Some("gateway.example")),
    ] {
        let (_, end) = meet_at(remote, &mut Tls::new(settings), &mut server).unwrap();
        assert_eq!(end.server_name(), expected, "{remote}");
    }
    let why = meet(&mut Tls::new(named(&"x".repeat(300))), &mut server).unwrap_err();
    assert!(why.contains("not a name of a host"), "{why}");
}

#[test]
fn bytes_pass_in_pieces() {
    let pki = Pki::new();
    let (mut a, mut b) = met(&pki.settings("client"), &pki.settings("server")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (mut sent, mut waits, mut received) = (0, 0, Vec::new());
    let mut buffer = vec![0; 10_000];
    while received.len() < bytes.len() {
        // From another address each time: the session keeps nothing of an unfinished write.
        let rest = bytes[sent..].to_vec();
        match a.write(&rest) {
            Ok(count) => sent += count,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                waits += 1;
                while let Ok(count) = b.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..count]);
                }
            }
        }
        if rest.is_empty()
            && let Ok(count) = b.read(&mut buffer)
        {
            received.extend_from_slice(&buffer[..count]);
        }
    }
    assert!(received == bytes && waits > 0, "{waits}");
    a.close();
    assert_eq!(b.read(&mut buffer).unwrap(), 0, "the end");
    assert_eq!(a.write(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn an_end_without_a_farewell_is_an_error() {
    let pki = Pki::new();
    let (a, mut b) = met(&pki.settings("client"), &pki.settings("server")).unwrap();
    a.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    let errors = [0; 2].map(|_| b.read(&mut [0]).unwrap_err().to_string());
    assert_eq!(errors, ["Protocol error: unexpected SSL/TLS connection close"; 2]);
}

#[test]
fn bytes_of_other_protocols_are_refused() {
    let pki = Pki::new();
    let mut server = Tls::new(pki.settings("server"));
    let hello = [&[22, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff][..], &[0; 70_000]].concat();
    for bytes in [
        &b"{\"method\":\"echo\",\"params\":[],\"id\":1}"[..],
        &[4, 0, 0, 8, 0, 0, 0, 1],
        &[0; 100],
        &[255; 100],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0],
        &hello,
    ] {
        let (mut near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        near.set_nonblocking(true).unwrap();
        let mut session = server.accept(far, "client".to_string()).unwrap();
        assert_eq!(server.handshake(&mut session).unwrap(), Handshake::Wait);
        let _all = near.write(bytes);
        drop(near);
        let result = loop {
            match server.handshake(&mut session) {
                Ok(Handshake::Wait) => {}
                other => break other,
            }
        };
        assert!(result.is_err(), "{bytes:?}");
    }
}

#[test]
fn changed_files_are_read_again() {
    let pki = Pki::new();
    let mut server = Tls::new(pki.settings("server"));
    let (mut client, mut stranger) = (Tls::new(pki.settings("client")), Tls::new(pki.settings("foreign")));
    assert_eq!(server.fault(), None);
    let _kept = meet(&mut client, &mut server).unwrap();

    // Key and certificate change one after the other: in between they do not match, and the former ones are in force.
    let new = identity("foreign server", Some(&pki.theirs), 2);
    pki.write("server.key", &new.key.private_key_to_pem_pkcs8().unwrap());
    meet(&mut client, &mut server).unwrap();
    assert!(
        server.fault().is_some_and(|why| why.contains("server.key: key values mismatch")),
        "{:?}",
        server.fault()
    );
    pki.write("server.cert", &new.cert.to_pem().unwrap());
    pki.write("ca", &pki.theirs.cert.to_pem().unwrap());
    meet(&mut stranger, &mut server).unwrap();
    assert_eq!(server.fault(), None);
    // The client's own file is the same one.
    assert!(meet(&mut client, &mut server).unwrap_err().contains("certificate verify failed"));

    fs::remove_file(pki.path("server.cert")).unwrap();
    server.refresh();
    assert!(
        server.fault().is_some_and(|why| why.contains("server.cert: No such file")),
        "{:?}",
        server.fault()
    );
    meet(&mut stranger, &mut server).unwrap();
    server.configure(&Settings::default());
    let why = meet(&mut stranger, &mut server).unwrap_err();
    assert_eq!(why, "Protocol not available: no private key is configured");
}

#[test]
fn unusable_files_are_a_fault() {
    let pki = Pki::new();
    let locked = key("x").private_key_to_pem_pkcs8_passphrase(Cipher::aes_128_cbc(), b"secret").unwrap();
    pki.write("locked", &locked);
    pki.write("empty", b"");
    pki.write("text", b"not PEM\n");
    pki.write("long", &vec![b'\n'; (8 << 20) + 1]);
    let fault = |name: &str, what: fn(&mut Settings) -> &mut Option<PathBuf>| {
        let mut settings = pki.settings("server");
        *what(&mut settings) = Some(if name.starts_with('/') { name.into() } else { pki.path(name) });
        let tls = Tls::new(settings);
        tls.fault().unwrap_or_default().to_string()
    };
    for (name, expected) in [
        ("nothing", "No such file or directory"),
        ("", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("long", "longer than 8 MiB"),
        ("empty", ""),
        ("text", ""),
    ] {
        let all: [fn(&mut Settings) -> &mut Option<PathBuf>; 3] =
            [|s| &mut s.private_key, |s| &mut s.certificate, |s| &mut s.ca_cert];
        for what in all {
            let why = fault(name, what);
            assert!(!why.is_empty() && why.contains(expected), "{name}: {why}");
        }
    }
    assert!(!fault("locked", |s| &mut s.private_key).is_empty());
    assert!(fault("client.key", |s| &mut s.private_key).contains("key values mismatch"));
    assert!(fault("nothing", |s| &mut s.peer_ca_cert).contains("No such file"));
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_ca_certificate_is_taken_from_the_first_server() {
    let pki = Pki::new();
    let mut bootstrap =
        Settings { ca_cert: Some(pki.path("new")), bootstrap: true, ..pki.settings("client") };
    let mut client = Tls::new(bootstrap.clone());
    // A server that does not send its CA's certificate.
    let mut server = Tls::new(Settings { ca_cert: Some("none".into()), ..pki.settings("server") });
    let why = meet(&mut client, &mut server).unwrap_err();
    assert!(why.contains("not self-signed") && !pki.path("new").exists(), "{why}");
    // Two connections at the same time: only the first one brings it, and neither goes on.
    let mut server = Tls::new(Settings { peer_ca_cert: Some(pki.path("ca")), ..pki.settings("server") });
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let mut early = client.connect(near, "server".to_string()).unwrap();
    let mut late = server.accept(far, "client".to_string()).unwrap();
    let why = meet(&mut client, &mut server).unwrap_err();
    assert!(why.contains("is known now"), "{why}");
    assert_eq!(fs::read(pki.path("new")).unwrap(), fs::read(pki.path("ca")).unwrap());
    assert_eq!(mode(&pki.path("new")), 0o444);
    let why = loop {
        if let Err(e) = client.handshake(&mut early) {
            break e.to_string();
        }
        let _any = server.handshake(&mut late);
    };
    assert!(why.contains("before the CA certificate was known"), "{why}");
    // From now on servers are verified.
    meet(&mut client, &mut server).unwrap();
    let mut stranger = Tls::new(Settings { ca_cert: Some("none".into()), ..pki.settings("foreign") });
    assert!(meet(&mut client, &mut stranger).unwrap_err().contains("certificate verify failed"));
    // So does a process that finds the file.
    assert!(met(&bootstrap, &pki.settings("foreign")).unwrap_err().contains("certificate verify failed"));
    // A place that cannot be written.
    bootstrap.ca_cert = Some(pki.path("no/folder"));
    let why = meet(&mut Tls::new(bootstrap), &mut server).unwrap_err();
    assert!(why.contains("No such file or directory"), "{why}");
}
