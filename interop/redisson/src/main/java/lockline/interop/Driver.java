package lockline.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * Does with Redisson what the lines of its standard input say, and ends with them:
 *
 * <pre>
 *   CLIENT/THREAD VERB ARGUMENT...
 * </pre>
 *
 * Each is answered by "CLIENT/THREAD ok VALUE" or "CLIENT/THREAD error WHY" when it is done. A lock of Redisson is
 * held by a thread, so each one that is named is a thread of its own here; it takes one line after another.
 */
public final class Driver {
  private static final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
  private static final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

  private Driver() {}

  public static void main(String[] args) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      String[] words = line.split(" ");
      threads.computeIfAbsent(words[0], id -> Executors.newSingleThreadExecutor()).execute(() -> answer(words));
    }
    Runtime.getRuntime().halt(0); // whatever the threads still wait for
  }

  private static void answer(String[] words) {
    String answer;
    try {
      Object value = step(words[0].split("/")[0], words[1], Arrays.copyOfRange(words, 2, words.length));
      answer = "ok " + value;
    } catch (Exception e) {
      answer = "error " + String.valueOf(e).replaceAll("\\s+", " ");
    }
    synchronized (System.out) {
      System.out.println(words[0] + " " + answer);
    }
  }

  private static Object step(String client, String verb, String[] args) throws Exception {
    RedissonClient redisson = clients.get(client);
    switch (verb) {
      case "connect": // WATCHDOG_MS MODE ADDRESS... (of a Cluster, if there are several; - is the default of MODE)
        clients.put(client, connect(Long.parseLong(args[0]), args[1], Arrays.copyOfRange(args, 2, args.length)));
        return "";
      case "shutdown":
        clients.remove(client).shutdown();
        return "";
      case "lock": // NAME... (a MultiLock, if there are several)
        lockOf(redisson, args).lock();
        return "";
      case "tryLock":
        return lockOf(redisson, args).tryLock();
      case "unlock":
        lockOf(redisson, args).unlock();
        return "";
      case "forceUnlock":
        return redisson.getLock(args[0]).forceUnlock();
      case "holdCount":
        return redisson.getLock(args[0]).getHoldCount();
      case "lockAndGetToken":
        return redisson.getFencedLock(args[0]).lockAndGetToken();
      case "count": // ROUNDS NAME...
        return count(redisson, Integer.parseInt(args[0]), Arrays.copyOfRange(args, 1, args.length));
      case "cycles": // KIND NAME CLIENTS THREADS MS ADDRESS
        return cycles(args);
      case "share":
        return Sharing.cycles(args);
      case "latch":
        return Sharing.latch(args);
      default:
        throw new IllegalArgumentException(verb);
    }
  }

  static RedissonClient connect(long watchdog, String mode, String... addresses) {
    Config config = new Config().setLockWatchdogTimeout(watchdog);
    if (addresses.length == 1) {
      config.useSingleServer().setAddress(addresses[0]);
    } else {
      ClusterServersConfig servers = config.useClusterServers().addNodeAddress(addresses);
      if (!mode.equals("-")) {
        servers.setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(mode));
      }
    }
    return Redisson.create(config);
  }

  private static RLock lockOf(RedissonClient redisson, String[] names) {
    RLock[] locks = Arrays.stream(names).map(redisson::getLock).toArray(RLock[]::new);
    return locks.length == 1 ? locks[0] : redisson.getMultiLock(locks);
  }

  /** Adds to the counter "n:NAME" of each lock, in two steps that nothing but the lock holds together. */
  private static String count(RedissonClient redisson, int rounds, String[] names) {
    RLock lock = lockOf(redisson, names);
    for (int i = 0; i < rounds; i++) {
      lock.lock();
      try {
        for (String name : names) {
          RBucket<String> counter = redisson.getBucket("n:" + name, StringCodec.INSTANCE);
          String n = counter.get();
          counter.set(String.valueOf(n == null ? 1 : Long.parseLong(n) + 1));
        }
      } finally {
        lock.unlock();
      }
    }
    return "";
  }

  /** Returns the cycles of all threads, and the nanoseconds that they took. */
  private static String cycles(String[] args) throws Exception {
    String kind = args[0], name = args[1];
    int perClient = Integer.parseInt(args[3]);
    List<RedissonClient> own = new ArrayList<>();
    ExecutorService pool = Executors.newCachedThreadPool();
    try {
      for (int i = 0; i < Integer.parseInt(args[2]); i++) {
        own.add(connect(30_000, "-", args[5]));
      }
      long began = System.nanoTime();
      long end = began + Long.parseLong(args[4]) * 1_000_000;
      List<Future<Long>> all = new ArrayList<>();
      for (RedissonClient redisson : own) {
        RLock lock = kind.equals("fair") ? redisson.getFairLock(name) : redisson.getLock(name);
        for (int i = 0; i < perClient; i++) {
          all.add(pool.submit(() -> {
            long n = 0;
            for (; System.nanoTime() < end; n++) {
              lock.lock();
              lock.unlock();
            }
            return n;
          }));
        }
      }
      long sum = 0;
      for (Future<Long> one : all) {
        sum += one.get();
      }
      return sum + " " + (System.nanoTime() - began);
    } finally {
      pool.shutdown();
      own.forEach(RedissonClient::shutdown);
    }
  }
}
