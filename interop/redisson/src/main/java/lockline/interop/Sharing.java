package lockline.interop;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.Redisson;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** What Redisson has for more than one holder: measured, and looked at whether it keeps its word. */
final class Sharing {
  private static final int ALONE = 1 << 16; // what a writer adds to inside: more than there are threads

  private final AtomicInteger inside = new AtomicInteger();
  private final AtomicInteger violations = new AtomicInteger();
  private final AtomicLong spent = new AtomicLong(); // ns inside

  private Sharing() {}

  private interface Turn {
    void once() throws Exception;
  }

  /**
   * KIND NAME CLIENTS THREADS MS PERMITS ADDRESS: returns the cycles of all threads, the nanoseconds that they took, those that were spent
   * inside, and how often there was somebody inside who should not have been.
   */
  static String cycles(String[] args) throws Exception {
    Sharing sharing = new Sharing();
    int perClient = Integer.parseInt(args[3]);
    List<RedissonClient> own = new ArrayList<>();
    ExecutorService pool = Executors.newCachedThreadPool();
    try {
      for (int i = 0; i < Integer.parseInt(args[2]); i++) {
        own.add(Driver.connect(30_000, "-", args[6]));
      }
      List<Turn> turns = new ArrayList<>();
      for (RedissonClient redisson : own) {
        turns.add(sharing.turn(redisson, args[0], args[1], Integer.parseInt(args[5])));
      }
      long began = System.nanoTime();
      long end = began + Long.parseLong(args[4]) * 1_000_000;
      List<Future<Long>> all = new ArrayList<>();
      for (Turn turn : turns) {
        for (int i = 0; i < perClient; i++) {
          all.add(pool.submit(() -> {
            long n = 0;
            for (; System.nanoTime() < end; n++) {
              turn.once();
            }
            return n;
          }));
        }
      }
      long sum = 0;
      for (Future<Long> one : all) {
        sum += one.get();
      }
      return sum + " " + (System.nanoTime() - began) + " " + sharing.spent.get() + " " + sharing.violations.get();
    } finally {
      pool.shutdown();
      own.forEach(RedissonClient::shutdown);
    }
  }

  private Turn turn(RedissonClient redisson, String kind, String name, int permits) throws Exception {
    switch (kind) {
      case "readWrite":
        RReadWriteLock both = redisson.getReadWriteLock(name);
        return () -> {
          boolean reads = ThreadLocalRandom.current().nextInt(100) < 95;
          RLock lock = reads ? both.readLock() : both.writeLock();
          lock.lock();
          visit(reads ? 1 : ALONE, reads ? ALONE - 1 : ALONE, 0);
          lock.unlock();
        };
      case "semaphore":
        RSemaphore semaphore = redisson.getSemaphore(name);
        semaphore.trySetPermits(permits);
        return () -> {
          semaphore.acquire();
          visit(1, permits, 1);
          semaphore.release();
        };
      case "expirable":
        RPermitExpirableSemaphore expirable = redisson.getPermitExpirableSemaphore(name);
        expirable.trySetPermits(permits);
        return () -> {
          String id = expirable.acquire(30, TimeUnit.SECONDS);
          visit(1, permits, 1);
          expirable.release(id);
        };
      default:
        throw new IllegalArgumentException(kind);
    }
  }

  /** Is inside for that many milliseconds. */
  private void visit(int weight, int most, long millis) throws InterruptedException {
    if (inside.addAndGet(weight) > most) {
      violations.incrementAndGet();
    }
    if (millis > 0) {
      long entered = System.nanoTime();
      Thread.sleep(millis);
      spent.addAndGet(System.nanoTime() - entered);
    }
    inside.addAndGet(-weight);
  }

  /**
   * NAME CLIENTS ROUNDS COUNT MS ADDRESS: in each round a thread of each client waits for a new latch, and after so many milliseconds another client counts it down.
   * Returns the median of the nanoseconds from the call of the last count-down to the return of the last waiter. The first round is not counted.
   * The clients share threads, as those of a program do.
   */
  static String latch(String[] args) throws Exception {
    EventLoopGroup loop = new NioEventLoopGroup();
    ExecutorService executor = Executors.newFixedThreadPool(16);
    ExecutorService pool = Executors.newCachedThreadPool();
    List<RedissonClient> own = new ArrayList<>();
    try {
      int waiters = Integer.parseInt(args[1]), rounds = Integer.parseInt(args[2]), count = Integer.parseInt(args[3]);
      for (int i = 0; i <= waiters; i++) {
        Config config = new Config().setEventLoopGroup(loop).setExecutor(executor);
        config.useSingleServer().setAddress(args[5]).setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        own.add(Redisson.create(config));
      }
      long[] took = new long[rounds];
      for (int round = -1; round < rounds; round++) {
        String name = args[0] + "-" + round;
        RCountDownLatch counter = own.get(waiters).getCountDownLatch(name);
        counter.trySetCount(count);
        List<Future<Long>> all = new ArrayList<>();
        for (RedissonClient redisson : own.subList(0, waiters)) {
          all.add(pool.submit(() -> {
            redisson.getCountDownLatch(name).await();
            return System.nanoTime();
          }));
        }
        for (int i = 1; i < count; i++) {
          counter.countDown();
        }
        Thread.sleep(Long.parseLong(args[4]));
        long called = System.nanoTime();
        counter.countDown();
        long last = 0;
        for (Future<Long> one : all) {
          if (one.get() - called < 0) {
            throw new IllegalStateException("a waiter returned before the last count-down");
          }
          last = Math.max(last, one.get() - called);
        }
        if (round >= 0) {
          took[round] = last;
        }
      }
      Arrays.sort(took);
      return String.valueOf(took[rounds / 2]);
    } finally {
      pool.shutdown();
      own.forEach(RedissonClient::shutdown);
      executor.shutdown();
      loop.shutdownGracefully();
    }
  }
}
