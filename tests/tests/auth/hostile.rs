//! Hostile authorization servers: each attack ends in a clear error, nothing is stored, and no request
//! goes to a forbidden place. The same servers without the fault are the controls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mcpvisor::auth::mcpvisor_auth::AuthError;
use mcpvisor::auth::mcpvisor_auth::record::CredentialRecord;
use mcpvisor::auth::mcpvisor_auth::store::CredentialStore as _;
use mcpvisor::{EventKind, NameLookup, Runtime, ServerHandle, StartMode, StateName, Transport};
use mcpvisor_testkit::auth_server::{
    AuthFault, AuthOptions, AuthServer, Endpoint, IssuerHost, ProtectedOptions,
};
use tokio::net::TcpListener;

use crate::browser::open_in_browser;
use crate::fleet::{next_event, reaches};
use crate::folder::Folder;
use crate::protected::{LONG, Protected, builder, run, web};

/// Where clouds serve the credentials of a machine.
const LINK_LOCAL: &str = "https://169.254.169.254";

/// Time for an attack to be noticed; those without an end take longer.
const SOON: Duration = Duration::from_secs(10);

/// Logs in with a browser.
async fn log_in(handle: &ServerHandle) -> Result<CredentialRecord, AuthError> {
    let login = handle.login().unwrap().begin().await?;
    let browser = tokio::spawn(open_in_browser(login.authorization_url().to_owned()));
    let finished = login.finish(Duration::from_secs(2)).await;
    browser.abort();
    finished
}

/// A server that needs a login.
async fn needs_login(protected: &Protected) -> (Runtime, ServerHandle) {
    let (runtime, handle) = protected.started().await;
    reaches(&handle, StateName::PermanentlyFailed).await;
    (runtime, handle)
}

/// A login that fails with the fault, with one of these texts, and works without it.
async fn assert_attack_fails(fault: AuthFault, on: Option<Endpoint>, expected: &[&str]) {
    let protected = Protected::new().await;
    let (runtime, handle) = needs_login(&protected).await;
    let armed = protected.auth.fault(fault.clone());
    match on {
        Some(on) => armed.on(on).for_ever(),
        None => armed.for_ever(),
    }
    let started = Instant::now();
    let error = log_in(&handle).await.unwrap_err().to_string();
    let took = started.elapsed();
    let clear = expected.iter().any(|text| error.contains(text));
    assert!(clear, "{fault:?} {on:?}: {error}");
    assert!(took < SOON, "{fault:?} {on:?}: {took:?}");
    assert!(protected.auth.injected() > 0, "{fault:?} {on:?}");
    let stored = protected.folder.store().list().await.unwrap();
    assert_eq!(stored, [], "{fault:?} {on:?}");
    assert_eq!(handle.status().state, StateName::PermanentlyFailed);

    protected.auth.disarm();
    let control = log_in(&handle).await;
    control.unwrap_or_else(|error| panic!("without {fault:?}: {error}"));
    reaches(&handle, StateName::Connected).await;
    run(&handle, "control").await.unwrap();
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn metadata_of_another_issuer_or_without_s256_is_refused() {
    for (fault, expected) in [
        (AuthFault::WrongIssuer, "issuer"),
        (AuthFault::NoS256, "S256"),
        (AuthFault::NoPkce, "PKCE"),
        (AuthFault::WrongResource, "resource"),
        (AuthFault::ScriptEndpoints, "URL"),
    ] {
        assert_attack_fails(fault, None, &[expected]).await;
    }
}

#[tokio::test]
async fn metadata_that_leads_to_link_local_addresses_is_refused() {
    let plain = LINK_LOCAL.replace("https", "http");
    for origin in [LINK_LOCAL.to_owned(), plain] {
        let refused = ["not allowed", "https is required"];
        let redirect = || AuthFault::Redirect(format!("{origin}/latest/meta-data"));
        for (fault, on) in [
            (AuthFault::EndpointsAt(origin.clone()), None),
            (AuthFault::OtherIssuer(origin.clone()), None),
            (redirect(), Some(Endpoint::Metadata)),
            (redirect(), Some(Endpoint::ResourceMetadata)),
        ] {
            assert_attack_fails(fault, on, &refused).await;
        }
    }
}

#[tokio::test]
async fn redirects_of_requests_with_secrets_are_not_followed() {
    for on in [Endpoint::Register, Endpoint::Token] {
        let fault = AuthFault::Redirect(format!("{LINK_LOCAL}/taken"));
        assert_attack_fails(fault, Some(on), &["307", "redirect"]).await;
    }
}

#[tokio::test]
async fn metadata_and_tokens_without_an_end_are_refused() {
    for on in [
        Endpoint::Metadata,
        Endpoint::ResourceMetadata,
        Endpoint::Token,
    ] {
        assert_attack_fails(AuthFault::Endless, Some(on), &["larger than"]).await;
    }
    for on in [Endpoint::Metadata, Endpoint::ResourceMetadata] {
        let fault = AuthFault::RedirectLoop;
        assert_attack_fails(fault, Some(on), &["redirects more than"]).await;
    }
}

#[tokio::test]
async fn metadata_that_drip_are_given_up() {
    let protected = Protected::new().await;
    let (runtime, handle) = needs_login(&protected).await;
    let drip = AuthFault::Drip(Duration::from_millis(100));
    protected.auth.fault(drip).on(Endpoint::Metadata).for_ever();
    let started = Instant::now();
    let error = log_in(&handle).await.unwrap_err().to_string();
    assert!(error.contains("no response within 30 s"), "{error}");
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    runtime.shutdown(LONG).await;
}

#[tokio::test]
async fn a_callback_of_another_issuer_or_login_is_refused_and_its_code_is_never_sent() {
    let other = AuthServer::start().await;
    let mix_up = AuthFault::MixUp {
        issuer: other.issuer(),
        code: "stolen-code".to_owned(),
    };
    for (fault, expected) in [
        (mix_up, "issuer"),
        (AuthFault::WrongIss, "issuer"),
        (AuthFault::UnexpectedIss, "issuer"),
        (AuthFault::NoIss, "iss"),
        (AuthFault::WrongState, "no login within"),
        (AuthFault::AccessDenied, "access_denied"),
    ] {
        let protected = Protected::new().await;
        let (runtime, handle) = needs_login(&protected).await;
        protected.auth.fault(fault.clone()).for_ever();
        let error = log_in(&handle).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{fault:?}: {error}");
        assert!(!error.contains("stolen-code"), "{error}");
        assert_eq!(protected.auth.count(Endpoint::Token), 0, "{fault:?}");
        protected.auth.disarm();
        log_in(&handle).await.unwrap();
        runtime.shutdown(LONG).await;
    }
    assert_eq!(other.requests(), []);
}

/// A name lookup with a script, and the names it was asked for.
#[derive(Clone, Default)]
struct ScriptedLookup {
    asked: Arc<Mutex<Vec<String>>>,
    count: Arc<AtomicUsize>,
    /// Whether a script that waits for it may begin.
    is_armed: Arc<AtomicBool>,
}

impl ScriptedLookup {
    /// The address of the lookup with this number, from 1.
    fn function(&self, address: impl Fn(usize) -> IpAddr + Send + Sync + 'static) -> NameLookup {
        let this = self.clone();
        Arc::new(move |name| {
            this.asked.lock().unwrap().push(name.to_owned());
            let number = this.count.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(vec![SocketAddr::new(address(number), 0)])
        })
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn link_local() -> IpAddr {
    "169.254.169.254".parse().unwrap()
}

#[tokio::test]
async fn a_name_that_resolves_to_another_address_later_is_checked_before_each_dial() {
    // Metadata, registration, token. One lookup each: what is checked is dialled.
    const REQUESTS: usize = 3;
    for forbidden in [Some(1), Some(2), Some(3), None] {
        let options = AuthOptions {
            host: IssuerHost::Localhost,
            ..AuthOptions::default()
        };
        let protected = Protected::with(options, ProtectedOptions::default()).await;
        let lookup = ScriptedLookup::default();
        let is_armed = Arc::clone(&lookup.is_armed);
        let function = lookup.function(move |number| match forbidden {
            Some(forbidden) if number == forbidden && is_armed.load(Ordering::SeqCst) => {
                link_local()
            }
            _ => LOOPBACK,
        });
        let web = web("web", Transport::http(protected.server.url()));
        let builder = protected.builder().server(web).name_lookup(function);
        let mut events = builder.events();
        let runtime = builder.start().await.unwrap();
        let handle = runtime.server("web").unwrap();
        // The runtime looks for the issuer too; its lookups end here.
        next_event(&mut events, |event| {
            matches!(event.kind, EventKind::AuthorizationNeeded { .. }).then_some(())
        })
        .await;
        lookup.count.store(0, Ordering::SeqCst);
        lookup.is_armed.store(true, Ordering::SeqCst);
        let outcome = log_in(&handle).await;
        match forbidden {
            Some(forbidden) => {
                let error = outcome.unwrap_err().to_string();
                let expected = "localhost resolves to 169.254.169.254, which is not allowed";
                assert!(error.contains(expected), "{forbidden}: {error}");
                assert_eq!(lookup.count.load(Ordering::SeqCst), forbidden);
            }
            None => {
                outcome.unwrap();
                assert_eq!(lookup.count.load(Ordering::SeqCst), REQUESTS);
                reaches(&handle, StateName::Connected).await;
            }
        }
        runtime.shutdown(LONG).await;
    }
}

#[tokio::test]
async fn a_public_server_leads_no_request_to_this_machine_or_its_network() {
    let public: IpAddr = "93.184.215.14".parse().unwrap();
    let private: IpAddr = "10.0.0.1".parse().unwrap();
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let url = format!(
        "https://mcp.test:{}/mcp",
        listener.local_addr().unwrap().port()
    );
    let dials = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let dials = Arc::clone(&dials);
        async move {
            while let Ok((connection, _)) = listener.accept().await {
                dials.fetch_add(1, Ordering::SeqCst);
                drop(connection);
            }
        }
    });
    // The first lookup says where the server is; the second one is that of the first request. The
    // public address is never dialled.
    for (first, then) in [
        (public, LOOPBACK),
        (public, private),
        (public, link_local()),
        (LOOPBACK, LOOPBACK),
    ] {
        let folder = Folder::new();
        let lookup = ScriptedLookup::default();
        let function = lookup.function(move |number| if number == 1 { first } else { then });
        let web = web("web", Transport::http(&url)).start(StartMode::Lazy);
        let builder = builder(&folder).server(web.required(false));
        let runtime = builder.name_lookup(function).start().await.unwrap();
        let handle = runtime.server("web").unwrap();
        let error = log_in(&handle).await.unwrap_err().to_string();
        let refused = error.contains("which is not allowed for this server");
        let is_control = first == LOOPBACK;
        assert_eq!(refused, !is_control, "{first} {then}: {error}");
        assert_eq!(dials.load(Ordering::SeqCst), usize::from(is_control));
        assert_eq!(*lookup.asked.lock().unwrap(), ["mcp.test", "mcp.test"]);
        runtime.shutdown(LONG).await;
    }
}
