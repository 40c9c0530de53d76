//! `sluice web`: over HTTP, and in a browser.

use crate::cli::program;
use crate::helpers::{BROADCAST, Frame, LIMIT, TOOLS, ping_all, send, switch, vsctl};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use testkit::{Cmd, Daemon, Netns, Running, require_netns, require_programs, wait_for};

const ADDRESS: &str = "127.0.0.1:9180";

fn web(netns: &Netns, daemon: &Daemon) -> Running {
    netns.up("lo").unwrap();
    let web = daemon.tool(&program()).netns(netns).args(["web", "--delay=0.2", "--listen", ADDRESS]);
    let running = web.spawn().unwrap();
    wait_for(LIMIT, "the page", || get(netns, "/").is_some()).unwrap();
    running
}

/// Head and body of a reply; `None`: nobody listens.
fn get(netns: &Netns, path: &str) -> Option<(String, String)> {
    let ask = || {
        let mut stream = TcpStream::connect(ADDRESS).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n").as_bytes()).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let (head, body) = reply.split_once("\r\n\r\n")?;
        Some((head.to_string(), body.to_string()))
    };
    netns.enter(ask).unwrap()
}

#[test]
fn the_page_and_its_values_are_served() {
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1], "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(&daemon, &format!("set Interface {} bfd:enable=true", one.port));
    let _web = web(&net.switch, &daemon);
    let (head, page) = get(&net.switch, "/").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("Content-Security-Policy: "), "{head}");
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    wait_for(LIMIT, "rates and sessions", || {
        ping_all(&one.netns, two.ipv4.into(), 2);
        let data: Value = serde_json::from_str(&get(&net.switch, "/data.json").unwrap().1).unwrap();
        let port = data["ports"].as_array().unwrap().iter().find(|p| p["name"] == one.port.as_str()).cloned();
        let busy = port.is_some_and(|p| p["rx_packets_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
        let session = &data["sessions"][0];
        busy && session["interface"] == one.port.as_str() && session["protocol"] == "bfd"
    })
    .unwrap();
    let refused = Cmd::new(program()).args(["web", "--listen=0.0.0.0:9180"]).output().unwrap();
    assert!(refused.stderr.contains("not a loopback address"), "{}", refused.stderr);
}

/// The page in a browser without a screen; `SLUICE_WEB_PICTURE` names a file for its picture.
#[test]
fn a_browser_shows_the_switch() {
    require_netns!();
    require_programs!(TOOLS[0], TOOLS[1], "ovs-ofctl", "ping");
    // A large package: only the long check needs it.
    if !testkit::long() {
        return;
    }
    require_programs!("chromium");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    vsctl(&daemon, &format!("set Interface {} bfd:enable=true", one.port));
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=9,dl_type=0x88b5,actions=drop"]).unwrap();
    let _web = web(&net.switch, &daemon);
    send(one, &[Frame { to: BROADCAST, from: "02:00:00:00:00:77", vlan: None }; 7]);
    let ip = two.ipv4.to_string();
    let _pings = one.netns.spawn("ping", &["-n", "-i", "0.01", &ip]).unwrap();
    let picture = std::env::var_os("SLUICE_WEB_PICTURE").map(PathBuf::from);
    let profile = daemon.rundir().join("chromium");
    let browse = |more: &str| {
        let profile = format!("--user-data-dir={}", profile.display());
        let options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1200,1000",
            "--virtual-time-budget=6000",
        ];
        let url = format!("http://{ADDRESS}/");
        let browser = net.switch.cmd("chromium").args(options).args([&profile, more, &url]);
        browser.limit(std::time::Duration::from_secs(120)).output().unwrap().stdout
    };
    let mut page = String::new();
    wait_for(LIMIT, "the port, its drops and its session in the browser", || {
        page = browse("--dump-dom");
        let shown =
            [&one.port, "data-ready=\"rates\"", "<td>rules</td>", "bfd", "netdev@ovs-netdev", "<polyline"];
        shown.iter().all(|text| page.contains(*text))
    })
    .unwrap_or_else(|e| panic!("{e:#}\n{page}"));
    if let Some(path) = picture {
        browse(&format!("--screenshot={}", path.display()));
        assert!(path.exists());
    }
}
