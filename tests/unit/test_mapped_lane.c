/* The lane cuda: pools on devices that processes of one machine share. Blocks are gathered by few
 * kernels, a path is tested before it is taken, and where it leads nowhere the next lane is. */
#include "common/base/failpoint.h"

#include "transport_device.h"

#include <poll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* NULL: none. */
static void set_failpoints(const char *specification)
{
    struct error err;
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1); /* this test is built for release, too */
    setenv("BATON_FAILPOINTS", specification ? specification : "", 1);
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
}

/* Two devices that share their memory, and transports on them. rdma: of both. */
static void sharing_open(struct devices *d, enum kv_lane lane, const char *socket)
{
    memset(d, 0, sizeof *d);
    device_open(&d->owner);
    device_open(&d->reader);
    device_shares(&d->owner);
    device_shares(&d->reader);
    struct device *ends[] = {&d->owner, &d->reader};
    struct kv_transport **transports[] = {&d->w.owner, &d->w.reader};
    for (int i = 0; i < 2; i++) {
        struct kv_transport_config config = {.kind = KV_TRANSPORT_REMOTE,
                                             .lane =
                                                 i || lane == KV_LANE_RDMA ? lane : KV_LANE_AUTO,
                                             .pool_bytes = POOL_BYTES,
                                             .layout = &layout,
                                             .max_reads = MAX_READS,
                                             .socket = i ? NULL : socket,
                                             .copier = &ends[i]->copier};
        struct error err;
        if (kv_transport_open(&config, transports[i], &err) != STATUS_OK)
            fail_msg("%s", err.text);
        kv_transport_serve(*transports[i], serve_all, NULL);
    }
    d->from = d->owner.memory;
    d->to = d->reader.memory;
    fill_pattern(d->from, POOL_BYTES);
    memset(d->to, FILL, POOL_BYTES);
    admit_to(&d->w);
}

static void sharing_pair(struct devices *d)
{
    d->w.peer = pair_with(d->w.reader, d->w.owner);
}

static void expect_ready(struct devices *d, const char *lane, const char *reason)
{
    struct kv_event event = reader_event(&d->w);
    assert_int_equal(event.kind, KV_EVENT_PEER_READY);
    assert_ptr_equal(event.peer, d->w.peer);
    assert_true(kv_peer_is_ready(d->w.peer));
    assert_string_equal(kv_peer_lane(d->w.peer), lane);
    if (!strstr(kv_peer_lane_reason(d->w.peer), reason) ||
        (!*reason && *kv_peer_lane_reason(d->w.peer)))
        fail_msg("%s, not %s", kv_peer_lane_reason(d->w.peer), reason);
}

/* Scattered runs, some of them blocks of 64 KiB. */
#define SHARED_RUNS 50
static void shared_runs(struct kv_read_run runs[SHARED_RUNS])
{
    for (uint32_t i = 0; i < SHARED_RUNS; i++)
        runs[i] = (struct kv_read_run){(i * 7 % SHARED_RUNS) << 18, (uint64_t)i << 18,
                                       i % 3 ? 64 << 10 : 48, 0};
}

static void read_shared(struct devices *d)
{
    struct kv_read_run runs[SHARED_RUNS];
    shared_runs(runs);
    memset(d->to, FILL, POOL_BYTES);
    struct kv_event event = read_all(d, runs, SHARED_RUNS);
    if (event.status != STATUS_OK)
        fail_msg("%s", event.reason);
    expect_bytes(d, runs, SHARED_RUNS);
    for (uint32_t i = 0; i < SHARED_RUNS; i++)
        assert_int_equal(d->to[runs[i].local_offset + runs[i].bytes], FILL);
}

static void test_blocks_are_gathered(void **state)
{
    (void)state;
    struct devices d;
    sharing_open(&d, KV_LANE_CUDA, NULL);
    sharing_pair(&d);
    assert_false(kv_peer_is_ready(d.w.peer));
    expect_ready(&d, "cuda", "");
    assert_int_equal(d.reader.gathers, 1); /* the self-test's */
    uint64_t copies = d.owner.queued;
    read_shared(&d);
    assert_int_equal(d.reader.gathers, 1 + (SHARED_RUNS + KV_MOVES_AT_ONCE - 1) / KV_MOVES_AT_ONCE);
    assert_int_equal(d.owner.queued, copies); /* its owner does nothing */
    devices_close(&d);
}

/* A read that is asked for too early waits, and takes the lane that the pairing settles for. */
static void test_early_reads_wait_for_the_lane(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        struct devices d;
        struct kv_read_run runs[SHARED_RUNS];
        sharing_open(&d, KV_LANE_AUTO, NULL);
        d.reader.maps_nothing = bad ? "no room for addresses" : NULL;
        sharing_pair(&d);
        shared_runs(runs);
        assert_int_equal(kv_transport_read(d.w.reader, d.w.peer, runs, SHARED_RUNS,
                                           clock_now_us() + PATIENCE_US, 7),
                         STATUS_OK);
        struct kv_event event = reader_event(&d.w);
        if (event.kind == KV_EVENT_PEER_READY)
            event = reader_event(&d.w);
        assert_int_equal(event.kind, KV_EVENT_READ_DONE);
        assert_int_equal(event.status, STATUS_OK);
        expect_bytes(&d, runs, SHARED_RUNS);
        assert_string_equal(kv_peer_lane(d.w.peer), bad ? "tcp" : "cuda");
        devices_close(&d);
    }
}

/* The next lane is taken, with a reason; a lane that was asked for by name is never replaced. */
static void test_a_lane_that_leads_nowhere(void **state)
{
    (void)state;
    static const struct {
        const char *what, *reason;
    } cases[] = {{"map", "can't be mapped: no room for addresses"},
                 {"import", "the owner's memory can't be mapped: a failpoint"},
                 {"lie", "the self-test failed"},
                 {"fail", "the own device fails"},
                 {"machine", "another machine"},
                 {"socket", "the owner's socket can't be reached"},
                 {"secret", "the owner gives no memory"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int named = 0; named < 2; named++) {
            struct devices d;
            struct error err;
            const char *what = cases[i].what;
            set_failpoints(!strcmp(what, "import") ? "transport.import=fail" : NULL);
            sharing_open(&d, named ? KV_LANE_CUDA : KV_LANE_AUTO, NULL);
            struct kv_admission admission = admit(d.w.owner);
            struct kv_address address;
            assert_int_equal(kv_address_decode(admission.address, admission.bytes,
                                               KV_TRANSPORT_REMOTE, &address, &err),
                             STATUS_OK);
            uint8_t *socket = (uint8_t *)(uintptr_t)address.worker;
            uint8_t *machine = (uint8_t *)(uintptr_t)address.rkey;
            uint8_t bytes[KV_TRANSPORT_MAX_ADDRESS_BYTES];
            size_t count;
            d.reader.maps_nothing = *what == 'm' && what[2] == 'p' ? "no room for addresses" : NULL;
            d.reader.lies_at = !strcmp(what, "lie") ? PROBE_OFFSET + 3 * KV_PROBE_PIECE_BYTES : 0;
            socket[3] ^= !strcmp(what, "socket");
            machine[3] ^= !strcmp(what, "machine");
            assert_int_equal(kv_address_encode(&address, bytes, &count, &err), STATUS_OK);
            if (!strcmp(what, "secret"))
                kv_transport_revoke(d.w.owner, admission.id);
            enum status status = kv_transport_pair(d.w.reader, bytes, count, &d.w.peer, &err);
            bool at_once = !strcmp(what, "machine") || !strcmp(what, "socket");
            d.reader.fails = !strcmp(what, "fail");
            if (named && at_once) {
                assert_int_equal(status, STATUS_UNAVAILABLE);
                assert_non_null(strstr(err.text, cases[i].reason));
            } else if (at_once) {
                assert_int_equal(status, STATUS_OK);
                assert_true(kv_peer_is_ready(d.w.peer));
                assert_string_equal(kv_peer_lane(d.w.peer), "tcp");
                assert_non_null(strstr(kv_peer_lane_reason(d.w.peer), cases[i].reason));
            } else if (named) {
                struct kv_event event = reader_event(&d.w);
                assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
                assert_int_equal(event.failure,
                                 !strcmp(what, "secret") ? KV_FAILURE_REFUSED : KV_FAILURE_LANE);
            } else if (strcmp(what, "secret") != 0) { /* without one tcp refuses, too */
                expect_ready(&d, "tcp", cases[i].reason);
                d.reader.fails = false;
                read_shared(&d);
            }
            devices_close(&d);
        }
}

/* A path is only good if the peer's bytes came by it: none of an earlier test count. The own
 * pattern, which peers read, stays. Pairings are tested one after the other, in both directions. */
static void test_the_self_test_sees_new_bytes(void **state)
{
    (void)state;
    enum { PEERS = 4 };
    static uint8_t pattern[KV_PROBE_BYTES];
    struct devices d, other;
    struct kv_peer *peers[PEERS];
    struct kv_event event;
    sharing_open(&d, KV_LANE_AUTO, NULL);
    sharing_open(&other, KV_LANE_AUTO, NULL);
    memcpy(pattern, d.to + PROBE_OFFSET, sizeof pattern);
    for (int i = 0; i < PEERS; i++)
        peers[i] = pair_with(d.w.reader, i % 2 ? other.w.owner : d.w.owner);
    uint64_t start_us = clock_now_us();
    for (size_t ready = 0; ready < PEERS;) {
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        poll_owner(&d.w);
        poll_owner(&other.w);
        ready += kv_transport_poll(d.w.reader, clock_now_us(), &event, 1);
    }
    for (int i = 0; i < PEERS; i++)
        assert_string_equal(kv_peer_lane(peers[i]), "cuda");
    assert_memory_equal(d.to + PROBE_OFFSET, pattern, sizeof pattern);
    struct world back = {.owner = d.w.reader, .reader = d.w.owner};
    back.peer = pair_with(back.reader, back.owner);
    assert_int_equal(reader_event(&back).kind, KV_EVENT_PEER_READY);
    assert_string_equal(kv_peer_lane(back.peer), "cuda");
    d.reader.idles = true;
    sharing_pair(&d);
    expect_ready(&d, "tcp", "the self-test failed");
    d.reader.idles = false;
    read_shared(&d);
    devices_close(&d);
    devices_close(&other);
}

/* Polls go on while the device is busy with other work. */
static void test_the_self_test_does_not_wait_for_the_device(void **state)
{
    (void)state;
    struct devices d;
    struct kv_event event;
    sharing_open(&d, KV_LANE_CUDA, NULL);
    uint64_t before = d.reader.queued;
    d.reader.held = true;
    sharing_pair(&d);
    for (uint64_t start_us = clock_now_us(); d.reader.queued == before;) {
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        poll_owner(&d.w);
        assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us(), &event, 1), 0);
    }
    for (int i = 0; i < 10; i++)
        assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us() + 9000000, &event, 1), 0);
    assert_int_equal(d.reader.done, before);
    d.reader.held = false;
    eventfd_write(d.reader.copier.ended_fd, 1);
    expect_ready(&d, "cuda", "");
    d.reader.held = true;
    sharing_pair(&d);
    while (d.reader.queued == d.reader.done) {
        poll_owner(&d.w);
        assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us(), &event, 1), 0);
    }
    kv_transport_unpair(d.w.reader, d.w.peer); /* in the middle of its test */
    assert_int_equal(reader_event(&d.w).kind, KV_EVENT_PEER_CLOSED);
    d.reader.held = false;
    sharing_pair(&d);
    expect_ready(&d, "cuda", "");
    devices_close(&d);
}

/* The kernel moves 16 bytes at a time. Other runs are refused one by one. */
static void test_runs_of_other_sizes_are_refused(void **state)
{
    (void)state;
    struct devices d;
    sharing_open(&d, KV_LANE_CUDA, NULL);
    sharing_pair(&d);
    const struct kv_read_run bad[] = {{0, 0, 24, 0}, {8, 0, 16, 0}, {0, 8, 16, 0}};
    for (int ready = 0; ready < 2; ready++) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            assert_int_equal(kv_transport_read(d.w.reader, d.w.peer, &bad[i], 1,
                                               clock_now_us() + PATIENCE_US, 1),
                             STATUS_INVALID);
        if (!ready)
            expect_ready(&d, "cuda", "");
    }
    read_shared(&d);
    devices_close(&d);
}

/* Either end may be without such a device, or may not want it. */
static void test_ends_that_do_not_share(void **state)
{
    (void)state;
    for (int end = 0; end < 2; end++) {
        struct devices d;
        memset(&d, 0, sizeof d);
        device_open(&d.owner);
        device_open(&d.reader);
        device_shares(end ? &d.owner : &d.reader);
        d.w.owner = open_on(&d.owner, NULL);
        d.w.reader = open_on(&d.reader, NULL);
        d.from = d.owner.memory;
        d.to = d.reader.memory;
        fill_pattern(d.from, POOL_BYTES);
        sharing_pair(&d);
        assert_true(kv_peer_is_ready(d.w.peer));
        assert_string_equal(kv_peer_lane(d.w.peer), "tcp");
        assert_string_equal(kv_peer_lane_reason(d.w.peer),
                            end ? "this device shares none"
                                : "the peer does not offer the lane cuda");
        read_shared(&d);
        devices_close(&d);
    }
}

/* An owner that is stopped doesn't answer at its socket. */
static void test_an_owner_that_does_not_answer(void **state)
{
    (void)state;
    struct devices d;
    struct kv_event event;
    sharing_open(&d, KV_LANE_AUTO, NULL);
    sharing_pair(&d);
    uint64_t now_us = clock_now_us();
    assert_int_equal(kv_transport_poll(d.w.reader, now_us, &event, 1), 0);
    assert_in_range(kv_transport_next_deadline_us(d.w.reader), now_us, now_us + 3000000);
    assert_int_equal(kv_transport_poll(d.w.reader, now_us + 1500000, &event, 1), 0);
    assert_int_equal(kv_transport_poll(d.w.reader, now_us + 3000000, &event, 1), 1);
    assert_int_equal(event.kind, KV_EVENT_PEER_READY);
    assert_string_equal(kv_peer_lane(d.w.peer), "tcp");
    assert_non_null(strstr(kv_peer_lane_reason(d.w.peer), "it may be stopped"));
    read_shared(&d); /* it goes on */
    devices_close(&d);
}

/* No byte lands after the forced close, and a device that fails ends the pairing. */
static void test_bursts_end(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct devices d;
        struct kv_read_run runs[SHARED_RUNS];
        struct kv_event event;
        sharing_open(&d, KV_LANE_CUDA, NULL);
        sharing_pair(&d);
        expect_ready(&d, "cuda", "");
        shared_runs(runs);
        d.reader.held = !fails;
        d.reader.fails = fails;
        assert_int_equal(kv_transport_read(d.w.reader, d.w.peer, runs, SHARED_RUNS,
                                           clock_now_us() + PATIENCE_US, 1),
                         STATUS_OK);
        if (fails) {
            event = reader_event(&d.w);
            assert_int_equal(event.kind, KV_EVENT_READ_DONE);
            assert_int_equal(event.status, STATUS_UNAVAILABLE);
            assert_true(kv_transport_failed_copies(d.w.reader) > 0);
        } else {
            assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us(), &event, 1), 0);
            assert_true(d.reader.done < d.reader.queued);
            kv_transport_unpair(d.w.reader, d.w.peer);
            assert_int_equal(d.reader.done, d.reader.queued);
            assert_int_equal(reader_event(&d.w).status, STATUS_CANCELLED);
        }
        assert_int_equal(reader_event(&d.w).kind, KV_EVENT_PEER_CLOSED);
        devices_close(&d);
    }
}

/* Strangers get no descriptor, hold up no reader, and are gone after a while. */
static void test_strangers_get_nothing(void **state)
{
    (void)state;
    struct devices d;
    struct kv_event event;
    char path[] = "/tmp/baton-test-XXXXXX", socket_path[64];
    assert_non_null(mkdtemp(path));
    snprintf(socket_path, sizeof socket_path, "%s/pool.sock", path);
    sharing_open(&d, KV_LANE_CUDA, socket_path);
    struct stat found;
    assert_int_equal(stat(socket_path, &found), 0);
    assert_true(S_ISSOCK(found.st_mode) && (found.st_mode & 0777) == 0600);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, socket_path);
    uint8_t hello[KV_FRAME_BYTES];
    struct kv_frame frame = {.kind = KV_FRAME_HELLO, .hello.admission = d.w.address.admission};
    memcpy(frame.hello.secret, d.w.address.secret, KV_SECRET_BYTES);
    frame.hello.secret[5] ^= 1;
    kv_frame_encode(&frame, hello);
    enum { STRANGERS = 40 };
    int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(fds[i], (const struct sockaddr *)&at, sizeof at) != 0) {
            assert_int_equal(errno, EAGAIN); /* the backlog is full */
            close(fds[i]);
            fds[i] = -1;
            continue;
        }
        poll_owner(&d.w);
        if (i == 0)
            assert_int_equal(send(fds[i], hello, sizeof hello, 0), sizeof hello);
        else if (i == 1)
            assert_int_equal(send(fds[i], "hello", 5, 0), 5);
    }
    poll_owner(&d.w);
    assert_int_equal(refused(&d.w, KV_REFUSED_SECRET), 1);
    assert_int_equal(refused(&d.w, KV_REFUSED_NOISE), 1);
    for (int i = 0; i < 2; i++) { /* they were closed, and given nothing */
        char byte;
        assert_int_equal(recv(fds[i], &byte, 1, 0), 0);
    }
    for (int turn = 0; turn < 4; turn++) /* the others have had their time */
        assert_int_equal(
            kv_transport_poll(d.w.owner, clock_now_us() + (uint64_t)turn * 3100000, &event, 1), 0);
    assert_true(refused(&d.w, KV_REFUSED_LATE) >= 16);
    sharing_pair(&d);
    expect_ready(&d, "cuda", "");
    read_shared(&d);
    for (int i = 0; i < STRANGERS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    devices_close(&d);
    assert_int_equal(stat(socket_path, &found), -1); /* its owner has removed it */
    rmdir(path);
}

/* Processes of other users may come to a name of no file. They take no place from readers. */
static void test_other_users_take_no_place(void **state)
{
    (void)state;
    enum { STRANGERS = 16, OTHER_USER = 65534 };
    struct devices d;
    int ends[2], fds[STRANGERS];
    if (geteuid() != 0)
        skip(); /* no other user can be had */
    sharing_open(&d, KV_LANE_CUDA, NULL);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int length = 1 + snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "baton-kv-%016llx",
                              (unsigned long long)d.w.address.id);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        char byte = seteuid(OTHER_USER) != 0;
        close(ends[0]);
        for (int i = 0; i < STRANGERS; i++) {
            fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            byte |= connect(fds[i], (const struct sockaddr *)&at,
                            (socklen_t)offsetof(struct sockaddr_un, sun_path) + (socklen_t)length);
        }
        (void)!write(ends[1], &byte, 1);
        (void)!read(ends[1], &byte, 1); /* until the test is over */
        _exit(0);
    }
    char failed = 1;
    close(ends[1]);
    assert_int_equal(read(ends[0], &failed, 1), 1);
    assert_int_equal(failed, 0);
    poll_owner(&d.w);
    assert_int_equal(refused(&d.w, KV_REFUSED_SECRET), STRANGERS);
    sharing_pair(&d);
    expect_ready(&d, "cuda", "");
    close(ends[0]);
    assert_int_equal(waitpid(other, NULL, 0), other);
    devices_close(&d);
}

/* An owner without a descriptor to accept a reader by doesn't spin: it looks again later. */
static void test_an_owner_without_descriptors(void **state)
{
    (void)state;
    enum { DESCRIPTORS = 200 };
    struct devices d;
    struct kv_event event;
    struct rlimit before, few;
    int fds[DESCRIPTORS], count = 0;
    sharing_open(&d, KV_LANE_CUDA, NULL);
    sharing_pair(&d);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){DESCRIPTORS, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((fds[count] = dup(STDERR_FILENO)) >= 0)
        count++;
    poll_owner(&d.w);
    struct pollfd work = {.fd = kv_transport_fd(d.w.owner), .events = POLLIN};
    uint64_t refusals = refused(&d.w, KV_REFUSED_RESOURCES), now_us = clock_now_us();
    int readable = poll(&work, 1, 0);
    uint64_t next_us = kv_transport_next_deadline_us(d.w.owner);
    while (count > 0)
        close(fds[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(refusals, 2); /* at the port, and at the socket */
    assert_int_equal(readable, 0);
    assert_true(next_us <= now_us + 100000);
    assert_int_equal(kv_transport_poll(d.w.owner, next_us, &event, 1), 0);
    expect_ready(&d, "cuda", "");
    read_shared(&d);
    devices_close(&d);
}

/* A socket that a killed owner has left is replaced. One that is in use isn't, and neither is a
 * file. */
static void test_a_socket_that_is_there(void **state)
{
    (void)state;
    struct devices d;
    struct error err;
    struct kv_transport *second;
    char path[] = "/tmp/baton-test-XXXXXX", socket_path[64];
    assert_non_null(mkdtemp(path));
    snprintf(socket_path, sizeof socket_path, "%s/pool.sock", path);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path, socket_path);
    int left = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(left, (const struct sockaddr *)&at, sizeof at), 0);
    close(left);
    sharing_open(&d, KV_LANE_CUDA, socket_path);
    struct kv_transport_config config = {.kind = KV_TRANSPORT_REMOTE,
                                         .lane = KV_LANE_CUDA,
                                         .pool_bytes = POOL_BYTES,
                                         .max_reads = 1,
                                         .socket = socket_path,
                                         .copier = &d.reader.copier};
    assert_int_equal(kv_transport_open(&config, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "a kv-socket of its own"));
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(folder, LOCK_EX), 0); /* another process takes a name */
    assert_int_equal(kv_transport_open(&config, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "can't be taken"));
    close(folder);
    sharing_pair(&d); /* the owner's is still there */
    expect_ready(&d, "cuda", "");
    devices_close(&d);
    close(open(socket_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    device_open(&d.reader);
    device_shares(&d.reader);
    assert_int_equal(kv_transport_open(&config, &second, &err), STATUS_IO);
    config.socket = "/tmp/0123456789012345678901234567890123456789012345678901234567890123456789"
                    "0123456789012345678901234567890123456789";
    assert_int_equal(kv_transport_open(&config, &second, &err), STATUS_INVALID);
    assert_int_equal(kv_transport_check_socket(config.socket, &err), STATUS_INVALID);
    assert_int_equal(kv_transport_check_socket(socket_path, &err), STATUS_OK);
    device_close(&d.reader);
    unlink(socket_path);
    rmdir(path);
}

/* The lane rdma needs a card and a GPU, which this machine has not. It is never replaced. */
static void test_rdma_without_a_card(void **state)
{
    (void)state;
    struct device device;
    struct kv_transport *transport;
    struct error err;
    device_open(&device);
    device_shares(&device);
    struct kv_transport_config config = {.kind = KV_TRANSPORT_REMOTE,
                                         .lane = KV_LANE_RDMA,
                                         .pool_bytes = POOL_BYTES,
                                         .max_reads = 1};
    assert_int_equal(kv_transport_open(&config, &transport, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the lanes cuda and rdma join pools in the memory of GPUs"));
    config.copier = &device.copier;
    assert_int_equal(kv_transport_open(&config, &transport, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the lane rdma can't be had: UCX"));
    assert_non_null(strstr(err.text, "Take the lane tcp"));
    device_close(&device);
}

/* The code of the lane rdma, over UCX's sockets in host memory: no card, and no GPU. It shows that
 * blocks come, that a peer which stops costs no more than the deadline, and that no byte lands
 * after the forced close. It shows nothing about cards. */
static void test_the_code_of_rdma_over_sockets(void **state)
{
    (void)state;
    static const char lane[] = "sockets in place of rdma";
    struct devices d;
    struct kv_read_run runs[SHARED_RUNS];
    struct kv_event event;
    set_failpoints("transport.card=fail@*");
    sharing_open(&d, KV_LANE_RDMA, NULL);
    set_failpoints(NULL);
    sharing_pair(&d);
    expect_ready(&d, lane, "");
    assert_int_equal(d.reader.gathers, 0);
    read_shared(&d);
    d.w.peer = pair_with(d.w.reader, d.w.owner); /* the owner leaves it in its test */
    uint64_t copies = d.reader.queued;
    while (d.reader.queued == copies) {
        poll_owner(&d.w);
        assert_int_equal(kv_transport_poll(d.w.reader, clock_now_us(), &event, 1), 0);
    }
    size_t count = 0;
    for (uint64_t now_us = clock_now_us(), first_us = now_us; !count; now_us += 100000) {
        assert_true(now_us < first_us + 5000000);
        count = kv_transport_poll(d.w.reader, now_us, &event, 1);
    }
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_int_equal(event.failure, KV_FAILURE_LANE);
    sharing_pair(&d);
    expect_ready(&d, lane, "");
    shared_runs(runs);
    memset(d.to, FILL, POOL_BYTES);
    uint64_t late_us = clock_now_us() + PATIENCE_US;
    assert_int_equal(kv_transport_read(d.w.reader, d.w.peer, runs, SHARED_RUNS, late_us, 1),
                     STATUS_OK);
    assert_int_equal(kv_transport_poll(d.w.reader, late_us - 1, &event, 1), 0);
    assert_int_equal(kv_transport_poll(d.w.reader, late_us, &event, 1), 1); /* it has stopped */
    assert_int_equal(event.status, STATUS_TIMEOUT);
    memset(d.to, FILL, POOL_BYTES);
    d.w.peer = pair_with(d.w.reader, d.w.owner);
    for (int ready = 0; !ready; ready = event.kind == KV_EVENT_PEER_READY)
        event = reader_event(&d.w);
    for (size_t i = 0; i < POOL_BYTES; i++)
        if (d.to[i] != FILL)
            fail_msg("byte %zu has landed after the forced close", i);
    read_shared(&d);
    devices_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_gathered),
        cmocka_unit_test(test_early_reads_wait_for_the_lane),
        cmocka_unit_test(test_a_lane_that_leads_nowhere),
        cmocka_unit_test(test_the_self_test_sees_new_bytes),
        cmocka_unit_test(test_the_self_test_does_not_wait_for_the_device),
        cmocka_unit_test(test_runs_of_other_sizes_are_refused),
        cmocka_unit_test(test_ends_that_do_not_share),
        cmocka_unit_test(test_an_owner_that_does_not_answer),
        cmocka_unit_test(test_bursts_end),
        cmocka_unit_test(test_strangers_get_nothing),
        cmocka_unit_test(test_other_users_take_no_place),
        cmocka_unit_test(test_an_owner_without_descriptors),
        cmocka_unit_test(test_a_socket_that_is_there),
        cmocka_unit_test(test_rdma_without_a_card),
        cmocka_unit_test(test_the_code_of_rdma_over_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
