//! The key in the keyring, and which store is chosen.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const SHORT: Duration = Duration::from_millis(100);

/// How the keyring behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Works,
    Fails,
    /// Waits until the mood changes.
    Hangs,
    /// Accepts secrets and forgets them.
    Forgets,
}

#[derive(Clone)]
struct FakeKeyring(Arc<Fake>);

struct Fake {
    mood: Mutex<Mood>,
    secrets: Mutex<BTreeMap<String, Vec<u8>>>,
    calls: AtomicUsize,
}

impl FakeKeyring {
    fn new(mood: Mood) -> Self {
        Self(Arc::new(Fake {
            mood: Mutex::new(mood),
            secrets: Mutex::default(),
            calls: AtomicUsize::default(),
        }))
    }

    fn set_mood(&self, mood: Mood) {
        *self.0.mood.lock().unwrap() = mood;
    }

    fn enter(&self) -> Result<Mood, String> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        loop {
            let mood = *self.0.mood.lock().unwrap();
            match mood {
                Mood::Hangs => std::thread::sleep(Duration::from_millis(5)),
                Mood::Fails => return Err("no bus".to_owned()),
                Mood::Works | Mood::Forgets => return Ok(mood),
            }
        }
    }

    fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// A process that starts now.
    fn process(&self) -> StoreOpener {
        let session = KeyringSession::new(self.clone());
        let opener = StoreOpener::default().keyring(session);
        opener.keyring_timeout(DEADLINE)
    }
}

impl Keyring for FakeKeyring {
    fn get(&self, service: &str, user: &str) -> Result<Option<Vec<u8>>, String> {
        self.enter()?;
        assert_eq!(service, "mcpvisor");
        Ok(self.0.secrets.lock().unwrap().get(user).cloned())
    }

    fn set(&self, _: &str, user: &str, secret: &[u8]) -> Result<(), String> {
        let mood = self.enter()?;
        // Another process has time to do the same.
        std::thread::sleep(Duration::from_millis(20));
        if mood == Mood::Works {
            let mut secrets = self.0.secrets.lock().unwrap();
            secrets.insert(user.to_owned(), secret.to_vec());
        }
        Ok(())
    }
}

async fn open(opener: StoreOpener, choice: StoreChoice, dir: &TestDir) -> SharedStore {
    opener.open(choice, dir).await.unwrap()
}

async fn refused(opener: StoreOpener, choice: StoreChoice, dir: &TestDir) -> StoreError {
    let opened = opener.open(choice, dir).await;
    opened.map(|store| store.name()).unwrap_err()
}

#[tokio::test]
async fn a_working_keyring_is_chosen_and_its_key_is_found_by_the_next_process() {
    let (dir, keyring) = (TestDir::new("works"), FakeKeyring::new(Mood::Works));
    for choice in [StoreChoice::Auto, StoreChoice::Keyring, StoreChoice::Auto] {
        let store = open(keyring.process(), choice, &dir).await;
        assert_eq!(store.name(), "keyring");
        store.save(record()).await.unwrap();
        assert_eq!(store.find(URL, "").await.unwrap(), [record()]);
    }
    assert_eq!(keyring.0.secrets.lock().unwrap().len(), 1);
    assert_eq!(
        (dir.records("enc").len(), dir.records("json").len()),
        (1, 0)
    );
    let other = TestDir::new("works-too");
    open(keyring.process(), StoreChoice::Auto, &other).await;
    let secrets = keyring.0.secrets.lock().unwrap();
    assert_eq!(secrets.len(), 2, "each folder has a key of its own");
}

#[tokio::test]
async fn without_a_working_keyring_files_are_chosen_unless_it_is_demanded() {
    for mood in [Mood::Fails, Mood::Forgets] {
        let (dir, keyring) = (TestDir::new("fails"), FakeKeyring::new(mood));
        let store = open(keyring.process(), StoreChoice::Auto, &dir).await;
        assert_eq!(store.name(), "file");
        let error = refused(keyring.process(), StoreChoice::Keyring, &dir).await;
        let text = error.to_string();
        assert!(
            text.contains("authStore") && text.contains("keyring"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn the_file_store_does_not_ask_the_keyring() {
    let (dir, keyring) = (TestDir::new("unasked"), FakeKeyring::new(Mood::Works));
    let store = open(keyring.process(), StoreChoice::File, &dir).await;
    assert_eq!((store.name(), keyring.calls()), ("file", 0));
}

#[tokio::test]
async fn logins_in_files_stay_in_use_when_a_keyring_appears() {
    let (dir, keyring) = (TestDir::new("appears"), FakeKeyring::new(Mood::Works));
    dir.files().save(record()).await.unwrap();
    let store = open(keyring.process(), StoreChoice::Auto, &dir).await;
    assert_eq!((store.name(), keyring.calls()), ("file", 0));
    assert_eq!(store.find(URL, "").await.unwrap(), [record()]);
}

#[tokio::test]
async fn a_failed_keyring_never_leads_back_to_older_files() {
    let (dir, keyring) = (TestDir::new("older"), FakeKeyring::new(Mood::Works));
    dir.files().save(record()).await.unwrap();
    let store = open(keyring.process(), StoreChoice::Keyring, &dir).await;
    assert_eq!(store.find(URL, "").await.unwrap(), [], "its own alone");
    let mut newer = record();
    newer.revision = 2;
    store.save(newer.clone()).await.unwrap();
    assert_eq!(store.find(URL, "").await.unwrap(), [newer]);

    keyring.set_mood(Mood::Fails);
    for choice in [StoreChoice::Auto, StoreChoice::Keyring] {
        let error = refused(keyring.process(), choice, &dir).await.to_string();
        assert!(error.contains("no bus"), "{error}");
        assert!(error.contains("unlock the keyring"), "{error}");
        assert!(error.contains("authStore to \"file\""), "{error}");
    }
    let file = open(keyring.process(), StoreChoice::File, &dir).await;
    assert_eq!(file.find(URL, "").await.unwrap(), [record()]);
}

#[tokio::test]
async fn a_lost_key_is_not_replaced_while_records_need_it() {
    let (dir, keyring) = (TestDir::new("lost"), FakeKeyring::new(Mood::Works));
    let store = open(keyring.process(), StoreChoice::Auto, &dir).await;
    store.save(record()).await.unwrap();
    keyring.0.secrets.lock().unwrap().clear();
    for choice in [StoreChoice::Auto, StoreChoice::Keyring] {
        let error = refused(keyring.process(), choice, &dir).await;
        assert!(matches!(error, StoreError::KeyMissing { .. }), "{error}");
        assert!(error.to_string().contains("log in again"), "{error}");
    }
    assert_eq!(keyring.0.secrets.lock().unwrap().len(), 0);
    fs::remove_file(&dir.records("enc")[0]).unwrap();
    open(keyring.process(), StoreChoice::Keyring, &dir).await;
}

#[tokio::test]
async fn a_hung_keyring_is_asked_once_and_its_late_answer_is_used() {
    let (dir, keyring) = (TestDir::new("hangs"), FakeKeyring::new(Mood::Hangs));
    let opener = keyring.process().keyring_timeout(SHORT);
    let begun = std::time::Instant::now();
    for _ in 0..3 {
        let error = refused(opener.clone(), StoreChoice::Keyring, &dir).await;
        assert!(error.to_string().contains("did not respond"), "{error}");
    }
    assert!(begun.elapsed() < DEADLINE / 2);
    assert_eq!(
        open(opener.clone(), StoreChoice::Auto, &dir).await.name(),
        "file"
    );
    assert_eq!(keyring.calls(), 1);
    keyring.set_mood(Mood::Works);
    let login = opener.keyring_timeout(DEADLINE);
    let store = open(login.clone(), StoreChoice::Keyring, &dir).await;
    store.save(record()).await.unwrap();

    let calls = keyring.calls();
    keyring.set_mood(Mood::Fails);
    let store = open(login, StoreChoice::Auto, &dir).await;
    assert_eq!(store.find(URL, "").await.unwrap(), [record()]);
    assert_eq!(keyring.calls(), calls, "the answer is remembered");
}

#[tokio::test]
async fn processes_that_start_together_create_one_key() {
    let (dir, keyring) = (TestDir::new("together"), FakeKeyring::new(Mood::Works));
    let open = |number: usize| {
        let (opener, state) = (keyring.process(), dir.0.clone());
        async move {
            let store = opener.open(StoreChoice::Keyring, &state).await.unwrap();
            let account = number.to_string();
            let record = record_of(key(URL, "https://as.example.com", &account));
            store.save(record).await.unwrap();
        }
    };
    let all: tokio::task::JoinSet<_> = (0..6).map(open).collect();
    all.join_all().await;
    let store = keyring
        .process()
        .open(StoreChoice::Auto, &dir)
        .await
        .unwrap();
    let listed = store.list().await.unwrap();
    assert_eq!(listed.iter().filter(|it| it.is_ok()).count(), 6);
    assert_eq!(keyring.0.secrets.lock().unwrap().len(), 1);
}

#[test]
fn a_choice_is_spelled_as_in_the_config() {
    let spelled = [
        (StoreChoice::Auto, "\"auto\""),
        (StoreChoice::Keyring, "\"keyring\""),
        (StoreChoice::File, "\"file\""),
    ];
    for (choice, text) in spelled {
        assert_eq!(serde_json::to_string(&choice).unwrap(), text);
        assert_eq!(serde_json::from_str::<StoreChoice>(text).unwrap(), choice);
    }
}

/// Needs `MCPVISOR_TEST_KEYRING` and an unlocked keyring, such as gnome-keyring under
/// `dbus-run-session`.
#[cfg(feature = "keyring")]
#[tokio::test]
async fn the_keyring_of_the_system_keeps_the_key() {
    if std::env::var_os("MCPVISOR_TEST_KEYRING").is_none() {
        return;
    }
    let dir = TestDir::new("system");
    for _ in 0..2 {
        let session = KeyringSession::new(SystemKeyring);
        let opener = StoreOpener::default().keyring(session);
        let store = open(opener, StoreChoice::Keyring, &dir).await;
        store.save(record()).await.unwrap();
        assert_eq!(store.find(URL, "").await.unwrap(), [record()]);
    }
    let id = fs::read(dir.path("credentials/keyring.json")).unwrap();
    let id: serde_json::Value = serde_json::from_slice(&id).unwrap();
    let entry = ::keyring::Entry::new("mcpvisor", id["id"].as_str().unwrap());
    entry.unwrap().delete_credential().unwrap();
}
