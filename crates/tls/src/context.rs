//! [`Tls`]: key, certificates and trusted CA of the process, read from their files; bootstrap of the CA.

use crate::files::{self, Watched};
use crate::protocols::Protocols;
use crate::session::{Handshake, Session, Side};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslSessionCacheMode, SslVerifyMode,
};
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509NameRef, X509VerifyResult};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Ciphers up to TLS 1.2 unless set otherwise, as OVS; the security level is that of the system's OpenSSL.
const CIPHERS: &str = "HIGH:!aNULL:!MD5";
/// The name of no CA certificate: peers are not verified.
const NO_CA: &str = "none";

/// Files and parameters, with the names of OVS's options.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// `--private-key`, in PEM.
    pub private_key: Option<PathBuf>,
    /// `--certificate` for that key, in PEM.
    pub certificate: Option<PathBuf>,
    /// `--ca-cert` or `--bootstrap-ca-cert`: certificates in PEM that peers' certificates must chain to; `none` trusts
    /// every peer.
    pub ca_cert: Option<PathBuf>,
    /// Whether the CA certificate is taken from the first server connected to if its file is missing.
    pub bootstrap: bool,
    /// `--peer-ca-cert`: certificates in PEM sent after the own one, from which peers bootstrap.
    pub peer_ca_cert: Option<PathBuf>,
    /// `--ssl-protocols`.
    pub protocols: Option<String>,
    /// `--ssl-ciphers`, in OpenSSL's syntax: ciphers up to TLS 1.2.
    pub ciphers: Option<String>,
    /// `--ssl-ciphersuites`, in OpenSSL's syntax: cipher suites of TLS 1.3.
    pub ciphersuites: Option<String>,
    /// `--ssl-server-name`: the host that clients name to servers (RFC 6066 §3), in place of that of the remote.
    pub server_name: Option<String>,
}

impl Settings {
    fn files(&self) -> impl Iterator<Item = &Path> {
        let all = [&self.private_key, &self.certificate, &self.ca_cert, &self.peer_ca_cert];
        all.into_iter().flatten().map(PathBuf::as_path).filter(|path| *path != Path::new(NO_CA))
    }
}

struct Loaded {
    context: SslContext,
    /// The CA certificate is missing, to be taken from a server.
    bootstrap: bool,
}

/// TLS of the process. Files that change are read again; if they are unusable then, the last usable ones stay in
/// force.
#[derive(Default)]
pub struct Tls {
    settings: Settings,
    watched: Watched,
    loaded: Option<Loaded>,
    fault: Option<String>,
}

impl Tls {
    /// With these settings.
    pub fn new(settings: Settings) -> Tls {
        let mut tls = Tls { settings, ..Tls::default() };
        tls.load();
        tls
    }

    /// Replaces the settings. Sessions stay as they are.
    pub fn configure(&mut self, settings: &Settings) {
        if self.settings != *settings {
            *self = Tls::new(settings.clone());
        }
    }

    /// Reads the files again if they changed: a system call for each, for every new connection or once a second.
    pub fn refresh(&mut self) {
        if self.watched.changed() {
            self.load();
        }
    }

    /// Reason that connections are impossible, or that changed files are not in force.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Starts a session with a server that the stream is connected to.
    ///
    /// # Errors
    /// The configuration is not usable.
    pub fn connect<S: Read + Write>(&mut self, stream: S, name: String) -> io::Result<Session<S>> {
        self.session(stream, name, Side::Client)
    }

    /// Starts a session with a client that has connected.
    ///
    /// # Errors
    /// The configuration is not usable.
    pub fn accept<S: Read + Write>(&mut self, stream: S, name: String) -> io::Result<Session<S>> {
        self.session(stream, name, Side::Server)
    }

    fn session<S: Read + Write>(&mut self, stream: S, name: String, side: Side) -> io::Result<Session<S>> {
        self.refresh();
        let Some(loaded) = &self.loaded else {
            let why = self.fault.as_deref().unwrap_or("no private key is configured");
            log::error!(target: "stream_ssl", "{name}: SSL/TLS is not usable: {why}");
            return Err(io::Error::new(ErrorKind::Unsupported, format!("Protocol not available: {why}")));
        };
        let mut ssl = Ssl::new(&loaded.context).map_err(io::Error::other)?;
        if side == Side::Client {
            self.name_server(&mut ssl, &name)?;
        }
        let bootstrap = loaded.bootstrap && side == Side::Client;
        if bootstrap {
            ssl.set_verify(SslVerifyMode::NONE);
        }
        Session::new(ssl, stream, side, name, bootstrap)
    }

    /// Names the host of a remote to its server, or the host that the settings name instead.
    fn name_server(&self, ssl: &mut Ssl, remote: &str) -> io::Result<()> {
        if let Some(host) = &self.settings.server_name {
            return ssl.set_hostname(host).map_err(|e| {
                let why = format!("--ssl-server-name={host}: not a name of a host: {}", first_reason(&e));
                log::error!(target: "stream_ssl", "{remote}: {why}");
                io::Error::new(ErrorKind::InvalidInput, why)
            });
        }
        if let Some(host) = host_name(remote)
            && let Err(e) = ssl.set_hostname(host)
        {
            log::warn!(target: "stream_ssl", "{remote}: the host is not named to the server: {}", first_reason(&e));
        }
        Ok(())
    }

    /// Continues a handshake. Costs a signature at one of its steps: a millisecond with an RSA key of 2048 bits.
    ///
    /// # Errors
    /// It failed; the log has the reason. A session for bootstrap always fails: the next one verifies its peer.
    pub fn handshake<S: Read + Write>(&mut self, session: &mut Session<S>) -> io::Result<Handshake> {
        let progress = session.handshake()?;
        if progress == Handshake::Done && session.bootstrap {
            let ended = self.bootstrap(session);
            session.close();
            return Err(io::Error::new(ErrorKind::InvalidData, format!("Protocol error: {ended}")));
        }
        Ok(progress)
    }

    /// Takes the CA certificate from a server; returns the reason for ending its session.
    fn bootstrap<S: Read + Write>(&mut self, session: &Session<S>) -> String {
        let name = session.name();
        self.refresh();
        let Some(path) = self.settings.ca_cert.clone().filter(|_| self.needs_ca()) else {
            log::info!(target: "stream_ssl", "{name}: ended a connection from before the CA certificate was known");
            return "connected before the CA certificate was known".to_string();
        };
        let refused = |why: &str| {
            log::error!(target: "stream_ssl", "{name}: could not bootstrap CA cert: {why}");
            format!("could not bootstrap CA cert: {why}")
        };
        let Some(cert) = session.peer_ca() else { return refused("the peer sent no certificate") };
        if cert.issued(&cert) != X509VerifyResult::OK {
            return refused("the last certificate of the peer is not self-signed, so it is no CA's");
        }
        let pem = match cert.to_pem() {
            Ok(pem) => pem,
            Err(e) => return refused(&first_reason(&e)),
        };
        if let Err(e) = files::create(&path, &pem) {
            return refused(&format!("creating {} failed: {}", path.display(), sys::os_text(&e)));
        }
        log::info!(target: "stream_ssl", "successfully bootstrapped CA cert to {}", path.display());
        self.load();
        "the CA certificate is known now; connecting again".to_string()
    }

    fn needs_ca(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.bootstrap)
    }

    fn load(&mut self) {
        self.watched = Watched::look(self.settings.files());
        let before = self.fault.take();
        match self.read() {
            Ok(loaded) => self.loaded = Some(loaded),
            Err(why) => {
                // Without any setting nothing is expected to work.
                if self.settings.files().next().is_some() && before.as_ref() != Some(&why) {
                    let kept = if self.loaded.is_some() { "; the former files stay in force" } else { "" };
                    log::error!(target: "stream_ssl", "{why}{kept}");
                }
                self.fault = Some(why);
            }
        }
    }

    fn read(&self) -> Result<Loaded, String> {
        let Settings { private_key, certificate, ca_cert, bootstrap, peer_ca_cert, .. } = &self.settings;
        let private_key = private_key.as_deref().ok_or("no private key is configured")?;
        let certificate = certificate.as_deref().ok_or("no certificate is configured")?;
        let ca_cert = ca_cert.as_deref().ok_or("no CA certificate is configured")?;
        let mut builder = self.builder().map_err(|e| first_reason(&e))?;
        let read =
            |path: &Path| files::read(path).map_err(|e| format!("{}: {}", path.display(), sys::os_text(&e)));
        let bad = |path: &Path, e: &ErrorStack| format!("{}: {}", path.display(), first_reason(e));

        let pem = read(certificate)?;
        let own = X509::from_pem(&pem).map_err(|e| bad(certificate, &e))?;
        builder.set_certificate(&own).map_err(|e| bad(certificate, &e))?;
        let pem = read(private_key)?;
        // No password: an encrypted key is an error, not a question to a terminal.
        let key = PKey::private_key_from_pem_callback(&pem, |_| Ok(0)).map_err(|e| bad(private_key, &e))?;
        builder.set_private_key(&key).map_err(|e| bad(private_key, &e))?;
        builder.check_private_key().map_err(|e| bad(private_key, &e))?;

        let mut missing = false;
        if ca_cert == Path::new(NO_CA) {
            log::warn!(target: "stream_ssl", "peers' certificates are not verified: everyone may connect");
            builder.set_verify(SslVerifyMode::NONE);
        } else if *bootstrap && files::is_missing(ca_cert) {
            missing = true;
        } else {
            let all = X509::stack_from_pem(&read(ca_cert)?).map_err(|e| bad(ca_cert, &e))?;
            if all.is_empty() {
                return Err(format!("{}: no certificate", ca_cert.display()));
            }
            trust(&mut builder, &all).map_err(|e| bad(ca_cert, &e))?;
            all.iter().for_each(|cert| log_trusted(ca_cert, cert));
        }
        if let Some(path) = peer_ca_cert {
            for cert in X509::stack_from_pem(&read(path)?).map_err(|e| bad(path, &e))? {
                builder.add_extra_chain_cert(cert).map_err(|e| bad(path, &e))?;
            }
        }
        Ok(Loaded { context: builder.build(), bootstrap: missing })
    }

    /// A context without files. As in OVS, parameters that cannot be parsed are logged, and their defaults apply.
    fn builder(&self) -> Result<SslContextBuilder, ErrorStack> {
        let mut builder = SslContextBuilder::new(SslMethod::tls())?;
        builder.set_mode(
            SslMode::ENABLE_PARTIAL_WRITE
                | SslMode::ACCEPT_MOVING_WRITE_BUFFER
                | SslMode::AUTO_RETRY
                | SslMode::RELEASE_BUFFERS,
        );
        builder.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_num_tickets(0)?;
        let protocols = self.settings.protocols.as_deref().map_or(Ok(Protocols::default()), Protocols::parse);
        let protocols = protocols.unwrap_or_else(|unknown| {
            log::error!(target: "stream_ssl", "{}: SSL/TLS protocol not recognized", unknown.0);
            Protocols::default()
        });
        for name in protocols.deprecated() {
            log::warn!(target: "stream_ssl", "{name} is deprecated: newer versions of OVS do not have it");
        }
        builder.set_min_proto_version(Some(protocols.oldest()))?;
        builder.set_options(protocols.disabled() | SslOptions::NO_RENEGOTIATION | SslOptions::NO_TICKET);
        builder.set_cipher_list(CIPHERS)?;
        if let Some(Err(e)) = self.settings.ciphers.as_deref().map(|text| builder.set_cipher_list(text)) {
            log::error!(target: "stream_ssl", "SSL_CTX_set_cipher_list: {}", first_reason(&e));
            builder.set_cipher_list(CIPHERS)?;
        }
        if let Some(Err(e)) = self.settings.ciphersuites.as_deref().map(|text| builder.set_ciphersuites(text))
        {
            log::error!(target: "stream_ssl", "SSL_CTX_set_ciphersuites: {}", first_reason(&e));
        }
        Ok(builder)
    }
}

/// The host of `ssl:HOST:PORT`, unless that is an address, which has no name.
fn host_name(remote: &str) -> Option<&str> {
    let (host, _) = remote.strip_prefix("ssl:")?.rsplit_once(':')?;
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    (!host.is_empty() && !is_address).then_some(host)
}

/// Trusts these certificates, and names them to clients.
fn trust(builder: &mut SslContextBuilder, all: &[X509]) -> Result<(), ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    let mut names = Stack::new()?;
    for cert in all {
        store.add_cert(cert.clone())?;
        names.push(cert.subject_name().to_owned()?)?;
    }
    builder.set_cert_store(store.build());
    builder.set_client_ca_list(names);
    Ok(())
}

fn log_trusted(path: &Path, cert: &X509) {
    let digest = cert.digest(MessageDigest::sha1());
    let fingerprint = digest.map_or_else(
        |_| "unknown".to_string(),
        |digest| {
            let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            hex.join(":")
        },
    );
    let subject = one_line(cert.subject_name());
    log::info!(target: "stream_ssl", "Trusting CA cert from {} ({subject}) (fingerprint {fingerprint})", path.display());
}

/// A name as `/C=US/O=…`.
fn one_line(name: &X509NameRef) -> String {
    name.entries().fold(String::new(), |mut text, entry| {
        let value = entry.data().to_string().unwrap_or_default();
        // A String takes everything.
        let _ = write!(text, "/{}={value}", entry.object().nid().short_name().unwrap_or("?"));
        text
    })
}

/// The reason of the first error.
fn first_reason(stack: &ErrorStack) -> String {
    let first = stack.errors().first();
    first.and_then(|e| e.reason()).unwrap_or("OpenSSL failed without a reason").to_string()
}
