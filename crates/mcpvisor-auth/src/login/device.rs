//! A login that waits for a person on another device.

use std::time::Duration;

use super::LoginPrompt;
use super::session::Session;
use crate::error::AuthError;
use crate::grants::device::DeviceAuthorization;
use crate::record::CredentialRecord;
use crate::token_endpoint::is_invalid_client;

/// A login that waits for a person on another device. Dropping it ends the login; nothing is left
/// behind.
pub struct PendingDeviceLogin {
    session: Session,
    device: DeviceAuthorization,
}

impl PendingDeviceLogin {
    /// Requests a user code. A client that was registered earlier, and that the issuer does not know
    /// any more, is registered again.
    pub(super) async fn request(mut session: Session, reused: bool) -> Result<Self, AuthError> {
        let device = match DeviceAuthorization::request(&session.target()).await {
            Err(error) if reused && is_invalid_client(&error) => {
                session.register_again(None).await?;
                DeviceAuthorization::request(&session.target()).await?
            }
            device => device?,
        };
        Ok(Self { session, device })
    }

    /// The code that the person enters.
    pub fn user_code(&self) -> &str {
        self.device.user_code()
    }

    /// Where the person enters it; http or https.
    pub fn verification_uri(&self) -> &str {
        self.device.verification_uri()
    }

    /// The same with the code in it, if the issuer has one.
    pub fn verification_uri_complete(&self) -> Option<&str> {
        self.device.verification_uri_complete()
    }

    /// What to show to the person.
    pub fn prompt(&self) -> LoginPrompt<'_> {
        LoginPrompt::Device {
            user_code: self.user_code(),
            verification_uri: self.verification_uri(),
            verification_uri_complete: self.verification_uri_complete(),
            expires_in: self.device.time_left(),
        }
    }

    /// Polls until the person has logged in, then saves and returns the new record.
    pub async fn finish(self, timeout: Duration) -> Result<CredentialRecord, AuthError> {
        let target = self.session.target();
        let response = self.device.poll(&target, timeout).await?;
        self.session.save(response).await
    }
}
