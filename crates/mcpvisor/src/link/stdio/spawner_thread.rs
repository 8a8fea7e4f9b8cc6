//! The thread that spawns every child, and reaps children that were killed and dropped.
//!
//! A parent-death signal is sent when the *thread* that spawned the child ends. Threads of a tokio
//! runtime end when the runtime is dropped or idle, so one thread that lives as long as the process
//! spawns all children. Finding and starting a program may hang with the file system that holds it;
//! then another thread takes over the queue.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::sync::oneshot;

/// Spawns all children of this process.
pub(super) static SPAWNER: Spawner = Spawner::new();

/// How often killed children are polled until they can be reaped.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

/// A thread is stuck if one task takes longer.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// Threads that may be stuck at once; further tasks wait until one of them continues.
const MAX_STUCK: usize = 16;

/// Enough to spawn a process; the threads run nothing else.
const STACK_BYTES: usize = 256 * 1024;

/// Hands tasks to the spawner thread, which is started on first use.
pub(super) struct Spawner {
    pool: Mutex<Option<ThreadPool>>,
}

/// The spawner threads of this process. A thread never ends, because that would kill its children.
/// There is at most one more than may be stuck, and a thread that continues is used again.
struct ThreadPool {
    /// The process that the threads belong to: a fork does not copy them.
    process: u32,
    threads: Vec<SpawnerThread>,
    /// The thread that receives jobs.
    current: usize,
    /// Counts the changes of `current`.
    epoch: u32,
}

struct SpawnerThread {
    /// Holds one job per spawn and per killed child, so the number of servers bounds it.
    jobs: Sender<Job>,
    /// Set while the thread runs a task.
    busy: Arc<AtomicBool>,
}

enum Job {
    Run(Arc<Task>),
    Reap(Pid),
}

/// A closure that runs once, on the first thread that takes it.
struct Task(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Task {
    fn take(&self) -> Option<Box<dyn FnOnce() + Send>> {
        lock(&self.0).take()
    }

    fn is_taken(&self) -> bool {
        lock(&self.0).is_none()
    }
}

/// Cancels a task that has not started when this is dropped.
struct CancelOnDrop(Arc<Task>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Spawner {
    const fn new() -> Self {
        Self {
            pool: Mutex::new(None),
        }
    }

    /// Runs a closure on the spawner thread. If the future is dropped, a closure that has not
    /// started never runs, and the result of one that has is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (reply, mut done) = oneshot::channel();
        let work = Box::new(move || {
            let _ = reply.send(work());
        });
        let task = CancelOnDrop(Arc::new(Task(Mutex::new(Some(work)))));
        let mut epoch = self.send(Job::Run(Arc::clone(&task.0)))?;
        let result = loop {
            if let Ok(result) = tokio::time::timeout(STUCK_AFTER, &mut done).await {
                break result;
            }
            let is_replaced = self.replace_stuck(epoch);
            if task.0.is_taken() {
                break done.await;
            }
            // If all threads are stuck, the task stays queued until one of them continues.
            if is_replaced {
                epoch = self.send(Job::Run(Arc::clone(&task.0)))?;
            }
        };
        result.map_err(|_| io::Error::other("the spawner thread failed"))
    }

    /// Reaps a killed child in the background.
    pub(super) fn reap_in_background(&self, child: Pid) {
        // Without the thread the child stays a zombie until this process ends.
        let _ = self.send(Job::Reap(child));
    }

    /// Sends a job to the current thread, and returns the epoch.
    fn send(&self, job: Job) -> io::Result<u32> {
        let mut pool = lock(&self.pool);
        let process = std::process::id();
        let pool = match &mut *pool {
            Some(pool) if pool.process == process => pool,
            other => other.insert(ThreadPool::start(process)?),
        };
        pool.send(job)?;
        Ok(pool.epoch)
    }

    /// Sends further jobs to another thread if the current one is still that of the stuck epoch.
    /// Returns whether there is another thread.
    fn replace_stuck(&self, epoch: u32) -> bool {
        match &mut *lock(&self.pool) {
            Some(pool) => pool.epoch != epoch || pool.replace_current(),
            None => false,
        }
    }
}

impl ThreadPool {
    fn start(process: u32) -> io::Result<Self> {
        Ok(Self {
            process,
            threads: vec![SpawnerThread::start()?],
            current: 0,
            epoch: 0,
        })
    }

    fn send(&mut self, job: Job) -> io::Result<()> {
        if let Some(thread) = self.threads.get_mut(self.current)
            && let Err(unsent) = thread.jobs.send(job)
        {
            *thread = SpawnerThread::start()?;
            let _ = thread.jobs.send(unsent.0);
        }
        Ok(())
    }

    fn replace_current(&mut self) -> bool {
        let is_free = |thread: &SpawnerThread| !thread.busy.load(Ordering::Acquire);
        let free = self.threads.iter().position(is_free);
        let next = match free {
            Some(free) => free,
            None if self.threads.len() > MAX_STUCK => return false,
            None => match SpawnerThread::start() {
                Ok(started) => {
                    self.threads.push(started);
                    self.threads.len() - 1
                }
                Err(_) => return false,
            },
        };
        tracing::warn!("spawning a process is stuck; continuing on another thread");
        self.current = next;
        self.epoch = self.epoch.wrapping_add(1);
        true
    }
}

impl SpawnerThread {
    fn start() -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        let busy = Arc::new(AtomicBool::new(false));
        let is_busy = Arc::clone(&busy);
        thread::Builder::new()
            .name("mcpvisor-spawn".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || run_jobs(&inbox, &is_busy))?;
        Ok(Self { jobs, busy })
    }
}

/// Never returns and survives panics, because the end of the thread would kill its children.
fn run_jobs(inbox: &Receiver<Job>, busy: &AtomicBool) {
    let mut killed: Vec<Pid> = Vec::new();
    let mut disconnected = false;
    loop {
        let job = match (killed.is_empty(), disconnected) {
            (true, true) => {
                thread::park();
                continue;
            }
            (true, false) => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (false, _) => inbox.recv_timeout(REAP_INTERVAL),
        };
        match job {
            Ok(Job::Run(task)) => {
                busy.store(true, Ordering::Release);
                if let Some(work) = task.take() {
                    // A panic drops the reply channel, which fails the caller.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                }
                busy.store(false, Ordering::Release);
            }
            Ok(Job::Reap(child)) => killed.push(child),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                disconnected = true;
                thread::sleep(REAP_INTERVAL);
            }
        }
        killed.retain(|child| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic while a lock is held can leave an invalid value.
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
    async fn all_tasks_run_on_one_thread_in_order() {
        let spawner = Spawner::new();
        let first = spawner.run(thread_id).await.unwrap();
        assert_ne!(first, thread_id());
        for _ in 0..10 {
            assert_eq!(spawner.run(thread_id).await.unwrap(), first);
        }
    }

    #[tokio::test]
    async fn a_stuck_task_delays_no_other_task_and_continues_when_it_can() {
        let spawner = Arc::new(Spawner::new());
        let (release, held) = mpsc::channel::<()>();
        let (start, started) = oneshot::channel();
        let stuck = tokio::spawn({
            let spawner = Arc::clone(&spawner);
            let work = move || {
                start.send(()).unwrap();
                held.recv().unwrap();
                thread_id()
            };
            async move { spawner.run(work).await }
        });
        started.await.unwrap();
        // The second task waits until the first one counts as stuck; the third does not wait.
        let limit = STUCK_AFTER + DEADLINE;
        let second = tokio::time::timeout(limit, spawner.run(thread_id)).await;
        let second = second.unwrap().unwrap();
        let third = tokio::time::timeout(STUCK_AFTER, spawner.run(thread_id)).await;
        assert_eq!(third.unwrap().unwrap(), second);
        release.send(()).unwrap();
        assert_ne!(stuck.await.unwrap().unwrap(), second);
    }

    #[tokio::test]
    async fn a_queued_task_that_was_cancelled_never_starts() {
        let spawner = Spawner::new();
        let (release, held) = mpsc::channel::<()>();
        let mut first = Box::pin(spawner.run(move || held.recv()));
        assert!(futures_util::poll!(&mut first).is_pending());
        let (start, mut started) = oneshot::channel();
        let mut second = Box::pin(spawner.run(move || start.send(())));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(second);
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        spawner.run(thread_id).await.unwrap();
        assert!(started.try_recv().is_err());
    }

    /// A task that blocks the current thread until it is released.
    struct Stuck {
        thread: thread::ThreadId,
        epoch: u32,
        release: Sender<()>,
    }

    impl Stuck {
        async fn on(spawner: &Spawner) -> Self {
            let (release, held) = mpsc::channel::<()>();
            let (start, started) = oneshot::channel();
            let work = Box::new(move || {
                start.send(thread_id()).unwrap();
                held.recv().unwrap();
            });
            let work = Arc::new(Task(Mutex::new(Some(work))));
            let epoch = spawner.send(Job::Run(work)).unwrap();
            let thread = started.await.unwrap();
            Self {
                thread,
                epoch,
                release,
            }
        }
    }

    fn count(spawner: &Spawner) -> usize {
        lock(&spawner.pool).as_ref().unwrap().threads.len()
    }

    async fn busy(spawner: &Spawner, wanted: usize) {
        let busy = || {
            let pool = lock(&spawner.pool);
            let all = pool.as_ref().unwrap().threads.iter();
            all.filter(|it| it.busy.load(Ordering::Acquire)).count()
        };
        let waited = async {
            while busy() != wanted {
                tokio::time::sleep(REAP_INTERVAL).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, waited).await;
        waited.expect("busy threads");
    }

    #[tokio::test]
    async fn stuck_threads_are_limited_and_a_thread_that_continues_is_used_again() {
        let spawner = Spawner::new();
        let mut stuck = Vec::new();
        for _ in 0..MAX_STUCK {
            let one = Stuck::on(&spawner).await;
            assert!(spawner.replace_stuck(one.epoch));
            stuck.push(one);
        }
        assert!(spawner.replace_stuck(0), "another thread took over already");
        let last = Stuck::on(&spawner).await;
        assert!(
            !spawner.replace_stuck(last.epoch),
            "the number of stuck threads is limited"
        );
        // The task waits until one of the stuck threads continues.
        let waiting = tokio::time::timeout(DEADLINE, spawner.run(thread_id));
        let released = async {
            tokio::time::sleep(STUCK_AFTER / 2).await;
            stuck[3].release.send(()).unwrap();
            stuck[3].thread
        };
        let (done_by, free) = tokio::join!(waiting, released);
        assert_eq!(done_by.unwrap().unwrap(), free);
        assert_eq!(count(&spawner), MAX_STUCK + 1);
        drop((stuck, last));
    }

    #[tokio::test]
    async fn repeated_slow_tasks_reuse_threads() {
        let spawner = Spawner::new();
        for _ in 0..10 * MAX_STUCK {
            let slow = Stuck::on(&spawner).await;
            assert!(spawner.replace_stuck(slow.epoch), "only one is stuck");
            slow.release.send(()).unwrap();
            busy(&spawner, 0).await;
        }
        assert_eq!(count(&spawner), 2);
    }

    #[tokio::test]
    async fn a_panic_does_not_end_the_thread() {
        let spawner = Spawner::new();
        let first = spawner.run(thread_id).await.unwrap();
        spawner.run(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(spawner.run(thread_id).await.unwrap(), first);
    }
}
