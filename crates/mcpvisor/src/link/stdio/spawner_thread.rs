//! The thread that is the parent of every child, and reaps those that nobody waits for.
//!
//! A parent-death signal is sent when the *thread* that started the child ends. Threads of a tokio
//! runtime end when it is dropped or has nothing to do, so children are started here, by one thread
//! that lasts as long as the process. Looking for a program and starting it may hang with the file
//! system that it is on; then the thread is left to it, and the others get another one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::sync::oneshot;

/// The parent of all children of this process.
pub(super) static PARENT: Parent = Parent::new();

/// How often killed children are looked after until they are gone.
const REAP_EVERY: Duration = Duration::from_millis(10);

/// Work that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(1);

/// So many threads may be stuck at once. Beyond that the others wait with them.
const MAX_STUCK: usize = 16;

/// Deep enough to start a process; nothing else runs there.
const STACK: usize = 256 * 1024;

/// The way to the thread, once there is one.
pub(super) struct Parent {
    threads: Mutex<Option<Threads>>,
}

/// The threads of this process. None of them ever ends: its children would be killed. So there are at
/// most one more than may be stuck, and one that is no longer stuck takes its turn again.
struct Threads {
    /// The process that they belong to: a fork leaves them behind.
    process: u32,
    all: Vec<Thread>,
    /// The one that gets the jobs.
    current: usize,
    /// How often another one got them.
    turn: u32,
}

struct Thread {
    /// One job per start and per child that was killed, so bounded by the number of servers.
    jobs: Sender<Job>,
    /// It is at work, and stuck if that lasts.
    busy: Arc<AtomicBool>,
}

enum Job {
    Work(Arc<Work>),
    Bury(Pid),
}

/// Something to be done once, by the thread that takes it first.
struct Work(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Work {
    fn take(&self) -> Option<Box<dyn FnOnce() + Send>> {
        lock(&self.0).take()
    }

    fn is_taken(&self) -> bool {
        lock(&self.0).is_none()
    }
}

/// Work that is not begun once this is dropped.
struct Wanted(Arc<Work>);

impl Drop for Wanted {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Parent {
    const fn new() -> Self {
        Self {
            threads: Mutex::new(None),
        }
    }

    /// Has the thread do something. Given up, it is not begun any more; if it was, what comes of it is
    /// dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (reply, mut done) = oneshot::channel();
        let work = Box::new(move || {
            let _ = reply.send(work());
        });
        let work = Wanted(Arc::new(Work(Mutex::new(Some(work)))));
        let mut turn = self.give(Job::Work(Arc::clone(&work.0)))?;
        let result = loop {
            if let Ok(result) = tokio::time::timeout(STUCK, &mut done).await {
                break result;
            }
            let is_replaced = self.replace(turn);
            if work.0.is_taken() {
                break done.await;
            }
            // Where all are stuck it waits with them, until one of them is not.
            if is_replaced {
                turn = self.give(Job::Work(Arc::clone(&work.0)))?;
            }
        };
        result.map_err(|_| io::Error::other("the thread for processes failed"))
    }

    /// Reaps a child that was killed, in the background.
    pub(super) fn bury(&self, child: Pid) {
        // Without the thread it stays a zombie until this process ends.
        let _ = self.give(Job::Bury(child));
    }

    /// Hands a job to the thread, which is started at the first one, and says whose turn it is.
    fn give(&self, job: Job) -> io::Result<u32> {
        let mut threads = lock(&self.threads);
        let process = std::process::id();
        let threads = match &mut *threads {
            Some(known) if known.process == process => known,
            other => other.insert(Threads::start(process)?),
        };
        threads.give(job)?;
        Ok(threads.turn)
    }

    /// Gives the turn of a thread that is stuck to another one, for those who come after; says whether
    /// there is one.
    fn replace(&self, stuck: u32) -> bool {
        match &mut *lock(&self.threads) {
            Some(threads) => threads.turn != stuck || threads.replace(),
            None => false,
        }
    }
}

impl Threads {
    fn start(process: u32) -> io::Result<Self> {
        Ok(Self {
            process,
            all: vec![Thread::start()?],
            current: 0,
            turn: 0,
        })
    }

    fn give(&mut self, job: Job) -> io::Result<()> {
        if let Some(thread) = self.all.get_mut(self.current)
            && let Err(unsent) = thread.jobs.send(job)
        {
            *thread = Thread::start()?;
            let _ = thread.jobs.send(unsent.0);
        }
        Ok(())
    }

    fn replace(&mut self) -> bool {
        let is_free = |thread: &Thread| !thread.busy.load(Ordering::Acquire);
        let free = self.all.iter().position(is_free);
        let next = match free {
            Some(free) => free,
            None if self.all.len() > MAX_STUCK => return false,
            None => match Thread::start() {
                Ok(started) => {
                    self.all.push(started);
                    self.all.len() - 1
                }
                Err(_) => return false,
            },
        };
        tracing::warn!("starting a process is stuck; the others do not wait for it");
        self.current = next;
        self.turn = self.turn.wrapping_add(1);
        true
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        let busy = Arc::new(AtomicBool::new(false));
        let is_busy = Arc::clone(&busy);
        thread::Builder::new()
            .name("mcpvisor-parent".to_owned())
            .stack_size(STACK)
            .spawn(move || be_parent(&inbox, &is_busy))?;
        Ok(Self { jobs, busy })
    }
}

/// Never returns: its children would be killed. Nor does a panic end it.
fn be_parent(inbox: &Receiver<Job>, busy: &AtomicBool) {
    let mut dying: Vec<Pid> = Vec::new();
    let mut left_alone = false;
    loop {
        let job = match (dying.is_empty(), left_alone) {
            (true, true) => {
                thread::park();
                continue;
            }
            (true, false) => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (false, _) => inbox.recv_timeout(REAP_EVERY),
        };
        match job {
            Ok(Job::Work(work)) => {
                busy.store(true, Ordering::Release);
                if let Some(work) = work.take() {
                    // Whoever waits for it hears of a panic by the end of its channel.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                }
                busy.store(false, Ordering::Release);
            }
            Ok(Job::Bury(child)) => dying.push(child),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                left_alone = true;
                thread::sleep(REAP_EVERY);
            }
        }
        dying.retain(|child| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock can leave a value in a bad state.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn thread_id() -> thread::ThreadId {
        thread::current().id()
    }

    #[tokio::test]
    async fn everything_is_done_by_one_thread_and_in_order() {
        let parent = Parent::new();
        let first = parent.run(thread_id).await.unwrap();
        assert_ne!(first, thread_id());
        for _ in 0..10 {
            assert_eq!(parent.run(thread_id).await.unwrap(), first);
        }
    }

    #[tokio::test]
    async fn a_start_that_is_stuck_holds_up_nobody_else_and_goes_on_when_it_can() {
        let parent = Arc::new(Parent::new());
        let (release, held) = mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let stuck = tokio::spawn({
            let parent = Arc::clone(&parent);
            let work = move || {
                begun.send(()).unwrap();
                held.recv().unwrap();
                thread_id()
            };
            async move { parent.run(work).await }
        });
        has_begun.await.unwrap();
        // This one waits in line until the first one is seen to be stuck, the next one does not.
        let patience = STUCK + DEADLINE;
        let second = tokio::time::timeout(patience, parent.run(thread_id)).await;
        let second = second.unwrap().unwrap();
        let third = tokio::time::timeout(STUCK, parent.run(thread_id)).await;
        assert_eq!(third.unwrap().unwrap(), second);
        release.send(()).unwrap();
        assert_ne!(stuck.await.unwrap().unwrap(), second);
    }

    #[tokio::test]
    async fn what_was_given_up_in_line_is_not_begun() {
        let parent = Parent::new();
        let (release, held) = mpsc::channel::<()>();
        let mut first = Box::pin(parent.run(move || held.recv()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let (begun, mut was_begun) = oneshot::channel();
        let mut second = Box::pin(parent.run(move || begun.send(())));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(second);
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        parent.run(thread_id).await.unwrap();
        assert!(was_begun.try_recv().is_err());
    }

    /// Work that the current thread is stuck in until it is released.
    struct Stuck {
        thread: thread::ThreadId,
        turn: u32,
        release: Sender<()>,
    }

    impl Stuck {
        async fn on(parent: &Parent) -> Self {
            let (release, held) = mpsc::channel::<()>();
            let (begun, has_begun) = oneshot::channel();
            let work = Box::new(move || {
                begun.send(thread_id()).unwrap();
                held.recv().unwrap();
            });
            let work = Arc::new(Work(Mutex::new(Some(work))));
            let turn = parent.give(Job::Work(work)).unwrap();
            let thread = has_begun.await.unwrap();
            Self {
                thread,
                turn,
                release,
            }
        }
    }

    fn count(parent: &Parent) -> usize {
        lock(&parent.threads).as_ref().unwrap().all.len()
    }

    async fn busy(parent: &Parent, wanted: usize) {
        let busy = || {
            let threads = lock(&parent.threads);
            let all = threads.as_ref().unwrap().all.iter();
            all.filter(|it| it.busy.load(Ordering::Acquire)).count()
        };
        let waited = async {
            while busy() != wanted {
                tokio::time::sleep(REAP_EVERY).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, waited).await;
        waited.expect("the threads that are busy");
    }

    #[tokio::test]
    async fn only_so_many_threads_are_stuck_at_once_and_one_that_is_no_longer_takes_its_turn() {
        let parent = Parent::new();
        let mut stuck = Vec::new();
        for _ in 0..MAX_STUCK {
            let one = Stuck::on(&parent).await;
            assert!(parent.replace(one.turn));
            stuck.push(one);
        }
        assert!(parent.replace(0), "there is another one already");
        let last = Stuck::on(&parent).await;
        assert!(!parent.replace(last.turn), "there are so many and no more");
        // This one waits with them until one of them goes on.
        let waiting = tokio::time::timeout(DEADLINE, parent.run(thread_id));
        let released = async {
            tokio::time::sleep(STUCK / 2).await;
            stuck[3].release.send(()).unwrap();
            stuck[3].thread
        };
        let (done_by, free) = tokio::join!(waiting, released);
        assert_eq!(done_by.unwrap().unwrap(), free);
        assert_eq!(count(&parent), MAX_STUCK + 1);
        drop((stuck, last));
    }

    #[tokio::test]
    async fn slow_starts_in_the_course_of_time_cost_no_thread_each() {
        let parent = Parent::new();
        for _ in 0..10 * MAX_STUCK {
            let slow = Stuck::on(&parent).await;
            assert!(parent.replace(slow.turn), "only one is stuck");
            slow.release.send(()).unwrap();
            busy(&parent, 0).await;
        }
        assert_eq!(count(&parent), 2);
    }

    #[tokio::test]
    async fn a_panic_does_not_end_the_thread() {
        let parent = Parent::new();
        let first = parent.run(thread_id).await.unwrap();
        parent.run(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(parent.run(thread_id).await.unwrap(), first);
    }
}
