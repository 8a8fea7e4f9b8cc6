//! The end of a credential while it is being renewed.

use std::net::IpAddr;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};

use super::*;
use crate::http_client::{RequestLimits, SendProgress};

/// A client that reports its progress: it connects, then sends, then receives.
#[derive(Clone)]
struct SlowClient {
    connect: Duration,
    answer: Duration,
    http: ScriptedHttp,
}

impl HttpClient for SlowClient {
    fn send(
        &self,
        request: Request<Bytes>,
        limits: RequestLimits,
    ) -> BoxFuture<'static, Result<Response<Bytes>, HttpError>> {
        let progress = request.extensions().get::<SendProgress>().cloned().unwrap();
        progress.connecting();
        let this = self.clone();
        async move {
            tokio::time::sleep(this.connect).await;
            if !progress.begin_send() {
                return Err(HttpError::NotSent("cancelled".to_owned()));
            }
            let answer = this.http.send(request, limits);
            tokio::time::sleep(this.answer).await;
            answer.await
        }
        .boxed()
    }

    fn resolve(&self, host: &str) -> BoxFuture<'static, Result<Vec<IpAddr>, HttpError>> {
        self.http.resolve(host)
    }
}

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// A credential whose renewal was started a second ago.
async fn renewing(connect: Duration, answer: Duration) -> (Credential, ScriptedHttp, MemoryStore) {
    let (http, store) = (ScriptedHttp::new([tokens("a2", "r2")]), MemoryStore::new());
    store.save(record("a1", Some("r1"))).await.unwrap();
    let client = SlowClient {
        connect,
        answer,
        http: http.clone(),
    };
    let config = CredentialConfig::new(URL);
    let credential = Credential::new(config, Arc::new(client), Arc::new(store.clone()));
    let first = credential.fresh().await.unwrap().unwrap();
    let renewal = credential.renew(Some(first.revision()));
    drop(tokio::time::timeout(SECOND, renewal).await);
    (credential, http, store)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_sent_is_waited_for() {
    let (credential, http, store) = renewing(Duration::ZERO, HOUR).await;
    assert!(credential.is_renewing());
    let begun = Instant::now();
    credential.finish().await;
    assert_eq!(begun.elapsed(), HOUR - SECOND);
    assert!(!credential.is_renewing());
    assert_eq!(stored(&store).await.tokens.access.expose(), "a2");
    assert_eq!(http.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_connects_is_cancelled_and_never_sent() {
    let (credential, http, store) = renewing(HOUR, Duration::ZERO).await;
    assert!(!credential.is_renewing());
    let begun = Instant::now();
    credential.finish().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    tokio::time::sleep(HOUR * 2).await;
    assert_eq!(http.requests().len(), 0);
    assert_eq!(stored(&store).await, record("a1", Some("r1")));
    // The lock of the store is free.
    drop(store.lock(URL, "").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_progress_is_unknown_counts_as_sent() {
    let http = ScriptedHttp::new([tokens("a2", "r2")]).delayed(HOUR);
    let store = MemoryStore::new();
    store.save(record("a1", Some("r1"))).await.unwrap();
    let config = CredentialConfig::new(URL);
    let credential = Credential::new(config, Arc::new(http), Arc::new(store.clone()));
    let first = credential.fresh().await.unwrap().unwrap();
    let renewal = credential.renew(Some(first.revision()));
    drop(tokio::time::timeout(SECOND, renewal).await);
    assert!(credential.is_renewing());
    credential.finish().await;
    assert_eq!(stored(&store).await.tokens.access.expose(), "a2");
}

#[tokio::test(start_paused = true)]
async fn no_renewal_begins_after_the_end() {
    let (credential, http, _) =
        credential(Some(record("a1", Some("r1"))), [tokens("a2", "r2")]).await;
    let first = credential.fresh().await.unwrap().unwrap();
    credential.finish().await;
    let error = credential.renew(Some(first.revision())).await.unwrap_err();
    assert!(matches!(error, AuthError::Cancelled(_)), "{error}");
    assert_eq!(http.requests().len(), 0);
}
