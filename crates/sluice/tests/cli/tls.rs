//! Remotes by `ssl:`: Debian's database server and switch, with certificates of `ovs-pki`.

use std::time::Duration;

use testkit::{Cmd, Netns, Output, Pki, RunDir, Running, require_netns, require_programs, wait_for};

use crate::server::sluice;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const DATABASE: &str = "--db=ssl:127.0.0.1:6640";
const LIMIT: Duration = Duration::from_secs(20);

/// The stock database server on TLS, with the certificate of a controller.
struct Server {
    pki: Pki,
    netns: Netns,
    dir: RunDir,
    _running: Running,
}

impl Server {
    fn start() -> Server {
        let (pki, netns) = (Pki::new().unwrap(), Netns::new("clitls").unwrap());
        let dir = RunDir::new("clitls").unwrap();
        let path = |name: &str| dir.join(name).display().to_string();
        dir.ovs("ovsdb-tool", &["create", &path("conf.db"), SCHEMA]).unwrap();
        let running = netns
            .cmd("ovsdb-server")
            .args([path("conf.db"), format!("--remote=p{}", dir.db()), "--remote=pssl:6640:127.0.0.1".into()])
            .args([format!("--unixctl={}", path("ovsdb-server.ctl")), "-vconsole:off".into()])
            .args(pki.options("ctl", "switch"))
            .args(["--peer-ca-cert", &pki.ca("controller")])
            .spawn()
            .unwrap();
        let list = || dir.ovs("ovsdb-client", &["list-dbs", &dir.db()]).is_ok();
        wait_for(LIMIT, "ovsdb-server to listen", list).unwrap();
        Server { pki, netns, dir, _running: running }
    }

    /// Our tool in the namespace.
    fn ours(&self, tool: &str, options: &[String], words: &[&str]) -> Output {
        let cmd = sluice().netns(&self.netns).args([tool, "--timeout=20"]).args(options).args(words);
        cmd.output().unwrap()
    }
}

#[test]
fn databases_are_reached_over_tls() {
    require_netns!();
    require_programs!("ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-pki", "openssl");
    let server = Server::start();
    let pki = &server.pki;
    let vsctl = |options: &[String], words: &[&str]| {
        server.ours("vsctl", options, &[&[DATABASE, "--no-wait"], words].concat())
    };
    let trusted = pki.options("sw", "controller");
    let add: Vec<String> =
        (0..300).flat_map(|n| ["--", "add-br", &format!("br{n}")].map(str::to_string)).collect();
    let out = vsctl(&trusted, &add.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(out.status.success(), "{}", out.stderr);
    assert_eq!(vsctl(&trusted, &["list-br"]).stdout.lines().count(), 300);
    // Short options, and parameters.
    let [key, cert] = pki.pair("sw");
    let ca = pki.ca("controller");
    let short: Vec<String> = ["-p", &key, "-c", &cert, &format!("-C{ca}")].map(str::to_string).into();
    for parameters in [
        &["--ssl-protocols=TLSv1.2", "--ssl-ciphers=ECDHE+AESGCM"][..],
        &["--ssl-protocols=TLSv1.3+", "--ssl-ciphersuites=TLS_AES_256_GCM_SHA384"],
    ] {
        let parameters = parameters.iter().map(|word| word.to_string());
        let all: Vec<String> = short.iter().cloned().chain(parameters).collect();
        let out = vsctl(&all, &["br-exists", "br7"]);
        assert!(out.status.success(), "{all:?}: {}", out.stderr);
    }
    // As the stock tool, up to the reason.
    let failed = "sluice vsctl: ssl:127.0.0.1:6640: database connection failed";
    for (options, why) in [
        (&pki.options("sw", "switch")[..], "Protocol error: certificate verify failed"),
        (&trusted[..1], "Protocol not available: no certificate is configured"),
        (&[], "Protocol not available: no private key is configured"),
        (&["--private-key=/none".to_string()], "Protocol not available: no certificate is configured"),
    ] {
        let out = vsctl(options, &["list-br"]);
        assert!(
            out.status.code() == Some(1) && out.stderr.starts_with(&format!("{failed} ({why}")),
            "{}",
            out.stderr
        );
    }
    // The server refuses this one, in its own words.
    let out = vsctl(&pki.options("ctl", "controller"), &["list-br"]);
    assert_eq!(out.status.code(), Some(1), "{}", out.stderr);
}

#[test]
fn the_ca_certificate_is_taken_from_the_server() {
    require_netns!();
    require_programs!("ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-pki", "openssl");
    let server = Server::start();
    let [key, cert, _] = server.pki.options("sw", "controller");
    for (file, options, codes) in [("a", &[][..], [1, 0]), ("b", &["--retry"][..], [0, 0])] {
        let file = server.pki.path(file).display().to_string();
        let pki = [key.clone(), cert.clone(), format!("--bootstrap-ca-cert={file}")];
        let words = [options, &[DATABASE, "--no-wait", "init"]].concat();
        // Without repetition the first connection fails, as the stock tool's.
        let run = [(); 2].map(|()| server.ours("vsctl", &pki, &words));
        assert_eq!(run.each_ref().map(|out| out.status.code()), codes.map(Some), "{run:?}");
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("-----BEGIN CERTIFICATE"));
    }
}

#[test]
fn switches_are_reached_over_tls() {
    require_netns!();
    require_programs!("ovs-vswitchd", "ovs-vsctl", "ovsdb-server", "ovsdb-tool", "ovs-pki", "openssl");
    let server = Server::start();
    let path = |name: &str| server.dir.join(name).display().to_string();
    let _switch = server
        .dir
        .env()
        .fold(Cmd::new("ovs-vswitchd").netns(&server.netns), |cmd, (name, value)| cmd.env(name, value))
        .args([server.dir.db(), "--enable-dummy".into(), "-vconsole:off".into(), "--disable-system".into()])
        .args([format!("--unixctl={}", path("vswitchd.ctl"))])
        .spawn()
        .unwrap();
    let [key, cert] = server.pki.pair("sw");
    let ca = server.pki.ca("controller");
    let line = format!(
        "set-ssl {key} {cert} {ca} -- add-br br0 -- set bridge br0 datapath_type=dummy -- set-controller br0 pssl:6653"
    );
    server.dir.ovs("ovs-vsctl", &line.split(' ').collect::<Vec<_>>()).unwrap();
    let ofctl = |options: &[String], words: &[&str]| server.ours("ofctl", options, words);
    let trusted = server.pki.options("ctl", "switch");
    let flows: Vec<String> = (0..2000).map(|n| format!("table=1,priority={n},actions=drop\n")).collect();
    let add = sluice().netns(&server.netns).args(["ofctl", "--timeout=20"]).args(&trusted);
    add.args(["add-flows", "ssl:127.0.0.1:6653", "-"]).input(flows.concat()).run().unwrap();
    let dumped = ofctl(&trusted, &["dump-flows", "ssl:127.0.0.1:6653", "table=1"]);
    assert_eq!(dumped.stdout.matches("actions=drop").count(), 2000, "{}", dumped.stderr);
    let out = ofctl(&server.pki.options("ctl", "controller"), &["show", "ssl:127.0.0.1:6653"]);
    assert!(
        out.status.code() == Some(1) && out.stderr.contains("certificate verify failed"),
        "{}",
        out.stderr
    );
}
