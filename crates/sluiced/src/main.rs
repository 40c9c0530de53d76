//! `sluiced`, the switch daemon: parses its command line, as `ovs-vswitchd`, and runs the daemon.
#![forbid(unsafe_code)]

#[cfg(test)]
mod manual;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};
use dpif::DummyMode;
use dpif_netdev::ablation::{Ablation, Optimisation};
use sluiced::config::{COMPATIBLE, DaemonConfig, Program};
use sluiced::daemon;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Flow keys and flows are constantly allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: sys::heap::Heap = sys::heap::Heap;

/// A software virtual switch, managed by OVSDB and OpenFlow.
///
/// Without DATABASE it follows the database server at unix:RUNDIR/db.sock; when nobody listens there, sluiced serves its own
/// database on that socket, kept in DBDIR/conf.db. It takes the role of a followed server of that database that is gone, too.
#[derive(Parser, Debug)]
#[command(name = "sluiced", disable_version_flag = true)]
struct Options {
    /// Database server to follow: unix:PATH, tcp:ADDRESS:PORT or ssl:ADDRESS:PORT
    database: Option<String>,
    /// Serve the own database at TARGET too, as ovsdb-server does: ptcp:, pssl:, punix: or connecting by tcp:, ssl:, unix:
    #[arg(long, value_name = "TARGET")]
    remote: Vec<String>,
    /// Write the process id to FILE (default RUNDIR/ovs-vswitchd.pid)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pidfile: Option<Option<PathBuf>>,
    /// Start although the pid file names a running process
    #[arg(long)]
    overwrite_pidfile: bool,
    /// Go into the background once ready
    #[arg(long)]
    detach: bool,
    /// Stay in the current directory when going into the background
    #[arg(long)]
    no_chdir: bool,
    /// Keep a process that starts the daemon anew after a crash, every 10 seconds at most
    #[arg(long)]
    monitor: bool,
    /// Log to FILE (default LOGDIR/ovs-vswitchd.log)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    log_file: Option<Option<PathBuf>>,
    /// Listen for control commands at SOCKET
    #[arg(long, value_name = "SOCKET")]
    unixctl: Option<PathBuf>,
    /// Set a log level: [MODULE][:DESTINATION][:LEVEL]
    #[arg(short = 'v', long = "verbose", value_name = "SPEC", num_args = 0..=1, default_missing_value = "any:any:dbg")]
    verbose: Vec<String>,
    /// Log to a syslog daemon by METHOD: libc (the local one), null, unix:FILE or udp:IP:PORT
    #[arg(long, value_name = "METHOD")]
    syslog_method: Option<String>,
    /// Log to this UDP port, too
    #[arg(long, value_name = "IP:PORT")]
    syslog_target: Option<String>,
    /// Do not confine threads: each has all system calls, files and capabilities of the process
    #[arg(long)]
    no_self_confinement: bool,
    /// Keep all memory from being paged out
    #[arg(long)]
    mlockall: bool,
    /// Become USER, and of GROUP, keeping the powers over network devices: run, log and database directories must be theirs
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Record this type of system in the own database (default: system-type.conf, else ID of /etc/os-release)
    #[arg(long, value_name = "TYPE")]
    system_type: Option<String>,
    /// Record this version of the system (default: system-version.conf, else VERSION_ID of /etc/os-release)
    #[arg(long, value_name = "VERSION")]
    system_version: Option<String>,
    /// Do without the kernel datapath: the userspace datapath serves bridges of type system
    #[arg(long)]
    disable_system: bool,
    /// Do not follow the system's routes: tunnels use those of ovs/route/add alone
    #[arg(long)]
    disable_system_route: bool,
    /// For tests: ports, datapaths and a clock without devices, beside the others or (system, override) in their place
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, value_parser = dummy_mode, default_missing_value = "")]
    enable_dummy: Option<DummyMode>,
    /// For tests: pretend as many cores as LIST has nodes, each on its node, such as 0,0,1,1
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    dummy_numa: Vec<u16>,
    #[arg(long, value_name = "LIST", value_delimiter = ',', require_equals = true, help = Ablation::help())]
    without: Vec<Optimisation>,
    /// For measuring only: receive N frames at a time at most
    #[arg(long, value_name = "N", require_equals = true, default_value_t = Ablation::BURST_PACKETS as u16,
        value_parser = clap::value_parser!(u16).range(1..=Ablation::BURST_MAX_PACKETS as i64))]
    batch: u16,
    #[command(flatten)]
    pki: Pki,
    /// Print the version
    #[arg(short = 'V', long)]
    version: bool,
}

/// Keys and certificates. The row of SSL in the database replaces the files; db:Open_vSwitch,SSL,COLUMN means the same.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "SSL/TLS (files in PEM, read again when they change)")]
struct Pki {
    /// Private key
    #[arg(short = 'p', long, value_name = "FILE", value_parser = |text: &str| pki_file(text, "private_key"))]
    private_key: Option<PkiFile>,
    /// Certificate for the private key
    #[arg(short = 'c', long, value_name = "FILE", value_parser = |text: &str| pki_file(text, "certificate"))]
    certificate: Option<PkiFile>,
    /// CA certificates that certificates of peers must chain to; `none` trusts every peer
    #[arg(short = 'C', long, value_name = "FILE", value_parser = |text: &str| pki_file(text, "ca_cert"))]
    ca_cert: Option<PkiFile>,
    /// CA certificates for peers; if FILE is missing, it is written from the first server connected to
    #[arg(long, value_name = "FILE", conflicts_with = "ca_cert", value_parser = |text: &str| pki_file(text, "ca_cert"))]
    bootstrap_ca_cert: Option<PkiFile>,
    /// Certificates sent after the own one, so that peers can bootstrap from them
    #[arg(long, value_name = "FILE")]
    peer_ca_cert: Option<PathBuf>,
    /// Enabled versions: a list, or ranges such as TLSv1.2-TLSv1.3 and TLSv1.2+ (the default)
    #[arg(long, value_name = "VERSIONS")]
    ssl_protocols: Option<String>,
    /// Enabled ciphers up to TLS 1.2, in the syntax of OpenSSL
    #[arg(long, value_name = "CIPHERS")]
    ssl_ciphers: Option<String>,
    /// Enabled cipher suites of TLS 1.3, in the syntax of OpenSSL
    #[arg(long, value_name = "SUITES")]
    ssl_ciphersuites: Option<String>,
    /// Name HOST to the servers of controllers, managers and the database, in place of that of the remote
    #[arg(long, value_name = "HOST")]
    ssl_server_name: Option<String>,
}

/// A file of the command line, or that of the database.
#[derive(Clone, PartialEq, Debug)]
enum PkiFile {
    Given(PathBuf),
    Database,
}

/// Parses a file name, or the column of the database that may stand in its place.
fn pki_file(text: &str, column: &str) -> Result<PkiFile, String> {
    match text.strip_prefix("db:") {
        None => Ok(PkiFile::Given(text.into())),
        Some(place) if place.split(',').eq(["Open_vSwitch", "SSL", column]) => Ok(PkiFile::Database),
        Some(_) => Err(format!("only db:Open_vSwitch,SSL,{column} can be given here")),
    }
}

impl Pki {
    fn settings(self) -> tls::Settings {
        // The daemon changes its directory, and reads the files again.
        let absolute = |path: PathBuf| match path.to_str() {
            Some("none") => path,
            _ => std::path::absolute(&path).unwrap_or(path),
        };
        let given = |file: Option<PkiFile>| match file {
            Some(PkiFile::Given(path)) => Some(absolute(path)),
            Some(PkiFile::Database) | None => None,
        };
        tls::Settings {
            private_key: given(self.private_key),
            certificate: given(self.certificate),
            bootstrap: self.bootstrap_ca_cert.is_some(),
            ca_cert: given(self.ca_cert.or(self.bootstrap_ca_cert)),
            peer_ca_cert: self.peer_ca_cert.map(absolute),
            protocols: self.ssl_protocols,
            ciphers: self.ssl_ciphers,
            ciphersuites: self.ssl_ciphersuites,
            server_name: self.ssl_server_name,
        }
    }
}

/// Parses the argument of `--enable-dummy`.
fn dummy_mode(level: &str) -> Result<DummyMode, String> {
    DummyMode::parse(Some(level))
        .ok_or_else(|| "unknown dummy level; there are system and override".to_string())
}

/// A directory from the environment, or its default.
fn directory(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| PathBuf::from(default), PathBuf::from)
}

/// An optional file: absent, given, or at its default location; relative names are resolved in `base`.
fn file(option: Option<Option<PathBuf>>, base: &Path, default: &str) -> Option<PathBuf> {
    option.map(|given| base.join(given.unwrap_or_else(|| PathBuf::from(default))))
}

/// How this process was started, with these arguments.
fn program(arguments: &[OsString], started_as: &str) -> Program {
    let mut arguments = arguments.iter().cloned();
    let name = arguments.next().unwrap_or_else(|| started_as.into());
    // The name of the file, not the file that has it now: a newer one may take its place.
    let file = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(&name));
    Program { file, name, arguments: arguments.collect(), directory: std::env::current_dir().ok() }
}

fn config(options: Options, started_as: &str, program: Program) -> DaemonConfig {
    let run_dir = directory("OVS_RUNDIR", "/var/run/openvswitch");
    let log_dir = directory("OVS_LOGDIR", "/var/log/openvswitch");
    let config_dir = directory("OVS_SYSCONFDIR", "/etc").join("openvswitch");
    let db_dir = std::env::var_os("OVS_DBDIR").map_or_else(|| config_dir.clone(), PathBuf::from);
    DaemonConfig {
        name: "ovs-vswitchd".to_string(),
        program,
        remote: options.database,
        may_embed: started_as != "ovs-vswitchd",
        remotes: options.remote,
        pid_file: file(options.pidfile, &run_dir, "ovs-vswitchd.pid"),
        overwrite_pid_file: options.overwrite_pidfile,
        detach: options.detach,
        monitor: options.monitor,
        no_chdir: options.no_chdir,
        log_file: file(options.log_file, &log_dir, "ovs-vswitchd.log"),
        unixctl: options.unixctl.map(|socket| run_dir.join(socket)),
        verbose: options.verbose,
        syslog_method: options.syslog_method,
        syslog_target: options.syslog_target,
        lock_memory: options.mlockall,
        confine: !options.no_self_confinement,
        user: options.user,
        system: (options.system_type, options.system_version),
        dummies: options.enable_dummy.unwrap_or_default(),
        dummy_numa: options.dummy_numa,
        kernel: !options.disable_system,
        system_routes: !options.disable_system_route,
        ablation: Ablation::new(options.without).with_bursts(options.batch.into()),
        tls: options.pki.settings(),
        run_dir,
        log_dir,
        db_dir,
        config_dir,
    }
}

fn run(options: Options, started_as: &str, program: Program) -> Result<()> {
    let config = config(options, started_as, program);
    if !config.run_dir.is_absolute() {
        bail!("{}: OVS_RUNDIR must be an absolute path", config.run_dir.display());
    }
    daemon::run(&config)
}

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let started_as = arguments
        .first()
        .and_then(|a| Path::new(a).file_name())
        .map_or_else(|| "sluiced".to_string(), |n| n.to_string_lossy().into_owned());
    let program = program(&arguments, &started_as);
    let options = Options::try_parse_from(arguments).unwrap_or_else(|e| e.exit());
    if options.version {
        println!("{}", COMPATIBLE);
        println!("{} {}", Options::command().get_name(), env!("CARGO_PKG_VERSION"));
        return;
    }
    if let Err(error) = run(options, &started_as, program) {
        daemon::report_failure(&started_as, &error);
        std::process::exit(1);
    }
}
