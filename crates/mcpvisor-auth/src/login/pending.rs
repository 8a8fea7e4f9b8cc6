//! A login that waits for the callback of the browser.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::LoginPrompt;
use super::session::Session;
use crate::callback::{Callback, ExpectedCallback, IgnoredCallback};
use crate::error::AuthError;
use crate::grants::authorization_code::AuthorizationRequest;
use crate::listener::CallbackListener;
use crate::record::CredentialRecord;
use crate::secret::Secret;
use crate::token_endpoint::TokenResponse;

/// A login that waits for the callback of the browser. Dropping it ends the login; nothing is left
/// behind.
pub struct PendingLogin {
    session: Session,
    listener: Option<CallbackListener>,
    request: AuthorizationRequest,
    url: String,
    paster: Paster,
    pasted: mpsc::Receiver<Result<Secret, AuthError>>,
}

/// Accepts pasted callbacks of a login, while it waits.
#[derive(Debug, Clone)]
pub struct Paster {
    expected: Arc<ExpectedCallback>,
    outcomes: mpsc::Sender<Result<Secret, AuthError>>,
}

impl Paster {
    /// Ends the wait with a pasted callback: the URL that the browser ended on, or its query. What
    /// does not belong to this login is returned as an error, and the login goes on waiting.
    pub fn paste(&self, text: &str) -> Result<(), IgnoredCallback> {
        let outcome = match self.expected.read_pasted(text) {
            Callback::Ignored(reason) => return Err(reason),
            Callback::Code(code) => Ok(code),
            Callback::Failed(error) => Err(error),
        };
        // The first callback counts; later ones find the channel full or closed.
        let _ = self.outcomes.try_send(outcome);
        Ok(())
    }
}

impl PendingLogin {
    pub(super) fn new(
        session: Session,
        listener: Option<CallbackListener>,
        request: AuthorizationRequest,
    ) -> Result<Self, AuthError> {
        let expected = ExpectedCallback::new(
            &session.config,
            &session.discovered,
            &request.redirect_uri,
            request.state.clone(),
        );
        let (outcomes, pasted) = mpsc::channel(1);
        Ok(Self {
            url: request.url(&session.target())?,
            paster: Paster {
                expected: Arc::new(expected),
                outcomes,
            },
            session,
            listener,
            request,
            pasted,
        })
    }

    /// The URL to open in a browser; http or https.
    pub fn authorization_url(&self) -> &str {
        &self.url
    }

    /// Where the browser is sent afterwards.
    pub fn redirect_uri(&self) -> &str {
        &self.request.redirect_uri
    }

    /// Whether a listener waits for the callback. If not, it must be pasted.
    pub fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    /// The issuer.
    pub fn issuer(&self) -> &str {
        &self.session.discovered.server.issuer
    }

    /// The scopes that are requested.
    pub fn scopes(&self) -> &[String] {
        &self.session.scopes
    }

    /// What to show to the person.
    pub fn prompt(&self) -> LoginPrompt<'_> {
        LoginPrompt::Browser {
            authorization_url: &self.url,
            redirect_uri: &self.request.redirect_uri,
            listening: self.is_listening(),
            paster: self.paster(),
        }
    }

    /// Accepts a pasted callback; see [`Paster::paste`].
    pub fn paste(&self, text: &str) -> Result<(), IgnoredCallback> {
        self.paster.paste(text)
    }

    /// A handle to paste callbacks while [`Self::finish`] waits.
    pub fn paster(&self) -> Paster {
        self.paster.clone()
    }

    /// Waits for the callback, from the listener or pasted, redeems its code, and saves and returns
    /// the new record.
    pub async fn finish(mut self, limit: Duration) -> Result<CredentialRecord, AuthError> {
        let code = match timeout(limit, self.callback()).await {
            Ok(code) => code?,
            Err(_) => {
                return Err(AuthError::Cancelled(format!(
                    "no login within {} s; start it again",
                    limit.as_secs()
                )));
            }
        };
        let response = self.redeem(&code).await?;
        self.session.save(response).await
    }

    /// The code of the first callback.
    async fn callback(&mut self) -> Result<Secret, AuthError> {
        let listener = self.listener.as_ref();
        let expected = &self.paster.expected;
        let received = async {
            match listener {
                Some(listener) => listener.wait(expected).await,
                None => pending().await,
            }
        };
        tokio::select! {
            outcome = received => outcome,
            Some(outcome) = self.pasted.recv() => outcome,
        }
    }

    /// Redeems the code, while the listener answers a browser that repeats its request.
    async fn redeem(&self, code: &Secret) -> Result<TokenResponse, AuthError> {
        let target = self.session.target();
        let response = self.request.redeem(&target, code);
        match &self.listener {
            None => response.await,
            Some(listener) => tokio::select! {
                response = response => response,
                never = listener.answer_repeated(&self.paster.expected) => match never {},
            },
        }
    }
}
