/* Strangers at the port of the KV lane: noise, wrong secrets, requests out of range, peers that
 * never write or never read, too many of them, and no descriptors left. Each costs its own
 * connection and a counter; the reader beside it goes on reading. */
#include "transport_world.h"

#include <sys/resource.h>

static struct kv_frame hello_of(const struct world *w)
{
    struct kv_frame hello = {.kind = KV_FRAME_HELLO, .hello.admission = w->address.admission};
    memcpy(hello.hello.secret, w->address.secret, KV_SECRET_BYTES);
    return hello;
}

/* Polls the owner until it has sent `count` bytes. Returns fewer if it closed the connection
 * before. */
static size_t hear(struct world *w, int fd, void *bytes, size_t count)
{
    size_t heard = 0;
    for (uint64_t start_us = clock_now_us(); heard < count;) {
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        poll_owner(w);
        ssize_t got = recv(fd, (uint8_t *)bytes + heard, count - heard, 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET))
            return heard;
        if (got > 0)
            heard += (size_t)got;
        struct pollfd fds[2] = {{kv_transport_fd(w->owner), POLLIN, 0}, {fd, POLLIN, 0}};
        if (got < 0)
            poll(fds, 2, 1000);
    }
    return heard;
}

static void expect_closed(struct world *w, int fd)
{
    uint8_t byte;
    assert_int_equal(hear(w, fd, &byte, 1), 0);
    close(fd);
}

static void expect_verdict(struct world *w, int fd, uint64_t verdict)
{
    uint8_t bytes[KV_FRAME_BYTES];
    struct kv_frame frame;
    assert_int_equal(hear(w, fd, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(kv_frame_decode(bytes, &frame), KV_FRAME_GOOD);
    assert_int_equal(frame.kind, KV_FRAME_WELCOME);
    assert_int_equal(frame.welcome.verdict, verdict);
    if (verdict != KV_ADMITTED) /* and gets nothing else */
        assert_true(frame.welcome.pool_id == 0 && frame.welcome.pool_bytes == 0);
}

static int dial_admitted(struct world *w)
{
    int fd = dial(w);
    struct kv_frame hello = hello_of(w);
    say_frame(fd, &hello);
    expect_verdict(w, fd, KV_ADMITTED);
    return fd;
}

static void test_noise_is_closed_and_harms_nobody(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    static const char *const noise[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02",
        "B",
        "BKVX and a text that is long enough for a frame.",
    };
    uint64_t expected = 0;
    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++) {
        int fd = dial(&w);
        say(fd, noise[i], strlen(noise[i]));
        if (strlen(noise[i]) > 1) {
            expect_closed(&w, fd);
            assert_int_equal(refused(&w, KV_REFUSED_NOISE), ++expected);
        } else {
            close(fd); /* "B" might have become a frame: it is only gone */
        }
        expect_reading(&w);
    }
    struct rng rng = rng_seeded(5);
    for (int i = 0; i < 200; i++) {
        uint64_t words[64];
        for (size_t k = 0; k < 64; k++)
            words[k] = rng_next(&rng);
        int fd = dial(&w);
        say(fd, words, sizeof words);
        expect_closed(&w, fd);
    }
    assert_int_equal(refused(&w, KV_REFUSED_NOISE), expected + 200);
    expect_reading(&w);
    world_close(&w);
}

static void test_wrong_and_revoked_secrets_are_refused(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    struct kv_frame wrong[3] = {hello_of(&w), hello_of(&w), hello_of(&w)};
    wrong[0].hello.secret[KV_SECRET_BYTES - 1] ^= 1;
    wrong[1].hello.admission += 100;
    memset(wrong[2].hello.secret, 0, KV_SECRET_BYTES); /* an admission that no reader has */
    wrong[2].hello.admission = 0;
    for (size_t i = 0; i < 3; i++) {
        int fd = dial(&w);
        say_frame(fd, &wrong[i]);
        expect_verdict(&w, fd, KV_NOT_ADMITTED);
        expect_closed(&w, fd);
    }
    int fd = dial_admitted(&w);
    kv_transport_revoke(w.owner, w.address.admission);
    expect_closed(&w, fd); /* with the connection that it had */
    fd = dial(&w);
    struct kv_frame hello = hello_of(&w);
    say_frame(fd, &hello);
    expect_verdict(&w, fd, KV_NOT_ADMITTED);
    expect_closed(&w, fd);
    assert_int_equal(refused(&w, KV_REFUSED_SECRET), 4);
    kv_transport_revoke(w.owner, 0); /* no reader's */
    kv_transport_revoke(w.owner, 4711);
    expect_reading(&w);
    world_close(&w);
}

static void test_another_version_is_told_so(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    struct kv_frame hello = hello_of(&w);
    uint8_t bytes[KV_FRAME_BYTES];
    kv_frame_encode(&hello, bytes);
    bytes[4]++;
    int fd = dial(&w);
    say(fd, bytes, sizeof bytes);
    expect_verdict(&w, fd, KV_OTHER_VERSION);
    expect_closed(&w, fd);
    assert_int_equal(refused(&w, KV_REFUSED_VERSION), 1);
    expect_reading(&w);
    world_close(&w);
}

/* Requests that an admitted reader may not send. */
static void test_asks_for_what_there_is_not_end_the_connection(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    static const struct {
        uint64_t offset, bytes;
    } bad[] = {
        {0, 0},          {0, POOL_BYTES + 1}, {POOL_BYTES, 1},          {POOL_BYTES - 1, 2},
        {UINT64_MAX, 2}, {2, UINT64_MAX},     {UINT64_MAX, UINT64_MAX},
    };
    uint64_t expected = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = dial_admitted(&w);
        say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK,
                                         .ask = {1, bad[i].offset, bad[i].bytes, 0}});
        expect_closed(&w, fd);
        assert_int_equal(refused(&w, KV_REFUSED_MISUSE), ++expected);
    }
    int fd = dial(&w); /* before HELLO */
    say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {1, 0, 16, 0}});
    expect_closed(&w, fd);
    struct kv_frame second[3] = {hello_of(&w),
                                 {.kind = KV_FRAME_ANSWER, .answer = {1, 16}},
                                 {.kind = KV_FRAME_WELCOME, .welcome = {KV_ADMITTED, 1, 1}}};
    for (size_t i = 0; i < 3; i++) {
        fd = dial_admitted(&w);
        say_frame(fd, &second[i]);
        expect_closed(&w, fd);
    }
    assert_int_equal(refused(&w, KV_REFUSED_MISUSE), expected + 4);
    expect_reading(&w);
    world_close(&w);
}

/* One byte at a time is slow, not wrong. */
static void test_frames_in_pieces_are_answered(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    struct kv_frame frames[2] = {hello_of(&w), {.kind = KV_FRAME_ASK, .ask = {9, 77, 100, 0}}};
    int fd = dial(&w);
    for (size_t i = 0; i < 2; i++) {
        uint8_t bytes[KV_FRAME_BYTES];
        kv_frame_encode(&frames[i], bytes);
        for (size_t k = 0; k < sizeof bytes; k++) {
            say(fd, bytes + k, 1);
            poll_owner(&w);
        }
    }
    expect_verdict(&w, fd, KV_ADMITTED);
    uint8_t answer[KV_FRAME_BYTES + 100];
    struct kv_frame frame;
    assert_int_equal(hear(&w, fd, answer, sizeof answer), sizeof answer);
    assert_int_equal(kv_frame_decode(answer, &frame), KV_FRAME_GOOD);
    assert_true(frame.kind == KV_FRAME_ANSWER && frame.answer.number == 9 &&
                frame.answer.bytes == 100);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(answer[KV_FRAME_BYTES + i], pattern(77 + i));
    close(fd);
    world_close(&w);
}

/* The bytes that an owner's worker lets be read: the first `bytes` by grant 5, and all by grant 0,
 * which expect_reading uses. */
struct rule {
    uint64_t admission, bytes;
};

static bool by_rule(void *owner, const struct kv_claim *claim)
{
    const struct rule *rule = owner;
    if (claim->grant == 0)
        return true;
    return claim->admission == rule->admission && claim->grant == 5 &&
           claim->offset + claim->bytes <= rule->bytes;
}

/* Asks, and expects `bytes` bytes of the pool, or as many zeros. */
static void expect_answer(struct world *w, int fd, uint64_t grant, uint64_t offset, bool refused)
{
    uint8_t answer[KV_FRAME_BYTES + 100];
    struct kv_frame frame;
    say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {9, offset, 100, grant}});
    assert_int_equal(hear(w, fd, answer, sizeof answer), sizeof answer);
    assert_int_equal(kv_frame_decode(answer, &frame), KV_FRAME_GOOD);
    assert_true(frame.kind == KV_FRAME_ANSWER && frame.answer.number == 9);
    assert_int_equal(frame.answer.bytes, 100);
    assert_int_equal(frame.answer.refused, refused);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(answer[KV_FRAME_BYTES + i], refused ? 0 : pattern(offset + i));
}

static void test_an_ask_without_a_grant_gets_no_byte(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    struct rule rule = {.admission = w.address.admission, .bytes = 1000};
    kv_transport_serve(w.owner, by_rule, &rule);
    int fd = dial_admitted(&w);
    expect_answer(&w, fd, 5, 900, false);
    expect_answer(&w, fd, 5, 901, true); /* one byte too far */
    expect_answer(&w, fd, 6, 0, true);
    expect_answer(&w, fd, 5, POOL_BYTES - 100, true);
    expect_answer(&w, fd, 5, 0, false); /* the connection goes on */
    assert_int_equal(refused(&w, KV_REFUSED_GRANT), 3);
    rule.admission++; /* another reader's grant */
    expect_answer(&w, fd, 5, 0, true);
    kv_transport_serve(w.owner, NULL, NULL);
    expect_answer(&w, fd, 0, 0, true);
    assert_int_equal(refused(&w, KV_REFUSED_MISUSE), 0);
    close(fd);
    world_close(&w);
}

/* The reader's side: a refused run ends its read, and neither the pairing nor a read beside it. */
static void test_a_refused_read_leaves_its_pairing(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    struct rule rule = {0};
    kv_transport_serve(w.owner, by_rule, &rule);
    struct kv_read_run runs[300];
    for (uint32_t i = 0; i < 300; i++)
        runs[i] = (struct kv_read_run){i * 64, i * 64, 64, i == 7 ? 5 : 0};
    uint64_t until_us = clock_now_us() + PATIENCE_US;
    assert_int_equal(kv_transport_read(w.reader, w.peer, runs, 300, until_us, 1), STATUS_OK);
    runs[7].grant = 0;
    assert_int_equal(kv_transport_read(w.reader, w.peer, runs, 300, until_us, 2), STATUS_OK);
    struct kv_event event = reader_event(&w);
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.cookie, 1);
    assert_int_equal(event.status, STATUS_NOT_FOUND);
    assert_int_equal(event.failure, KV_FAILURE_NOT_GRANTED);
    event = reader_event(&w);
    assert_int_equal(event.cookie, 2);
    assert_int_equal(event.status, STATUS_OK);
    expect_reading(&w);
    assert_int_equal(kv_transport_counters(w.reader).reads_failed[KV_FAILURE_NOT_GRANTED], 1);
    assert_int_equal(kv_transport_counters(w.reader).peers_closed, 0);
    world_close(&w);
}

/* A reader asks, reads slowly, and the blocks become another request's: it gets none of that. */
static void test_bytes_of_a_grant_that_has_ended_are_zeros(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    struct rule rule = {.admission = w.address.admission, .bytes = POOL_BYTES};
    kv_transport_serve(w.owner, by_rule, &rule);
    int fd = dial_admitted(&w);
    for (uint64_t i = 0; i < 2; i++)
        say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {i, 0, POOL_BYTES, 5}});
    struct pollfd idle = {kv_transport_fd(w.owner), POLLIN, 0};
    for (int i = 0; i < 300; i++)
        poll_owner(&w);
    while (poll(&idle, 1, 20) > 0)
        poll_owner(&w);
    rule.bytes = 0;
    memset(kv_transport_pool(w.owner), 0xab, POOL_BYTES); /* another request's bytes */
    size_t size = 2 * (KV_FRAME_BYTES + POOL_BYTES), zeros = 0, own = 0;
    uint8_t *answers = malloc(size);
    assert_non_null(answers);
    assert_int_equal(hear(&w, fd, answers, size), size);
    for (size_t i = 0; i < POOL_BYTES; i++) {
        uint8_t byte = answers[KV_FRAME_BYTES + i];
        bool is_own = byte == pattern(i) && zeros == 0;
        own += is_own;
        zeros += !is_own && byte == 0;
        assert_int_equal(answers[2 * KV_FRAME_BYTES + POOL_BYTES + i], 0);
    }
    assert_int_equal(own + zeros, POOL_BYTES);
    assert_true(own > 0 && zeros > POOL_BYTES / 2);
    free(answers);
    close(fd);
    world_close(&w);
}

/* Silent, dripping and half-open strangers have three seconds, by the clock that the owner is
 * given. */
static void test_the_late_are_closed(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    expect_reading(&w);
    int silent = dial(&w), dripping = dial(&w), leaving = dial(&w), half = dial(&w);
    struct kv_frame hello = hello_of(&w);
    uint8_t bytes[KV_FRAME_BYTES];
    kv_frame_encode(&hello, bytes);
    say(dripping, bytes, KV_FRAME_BYTES - 1);
    close(leaving);
    for (int i = 0; i < 10; i++)
        poll_owner(&w);
    uint64_t now_us = clock_now_us();
    assert_in_range(kv_transport_next_deadline_us(w.owner), now_us + 1000000, now_us + 3000000);
    shutdown(half, SHUT_WR);
    uint8_t byte;
    /* a peer that has closed its half is dropped at once */
    assert_int_equal(hear(&w, half, &byte, 1), 0);
    assert_int_equal(refused(&w, KV_REFUSED_LATE), 0);
    struct kv_event event;
    assert_int_equal(kv_transport_poll(w.owner, now_us + 3100000, &event, 1), 0);
    assert_int_equal(refused(&w, KV_REFUSED_LATE), 2);
    assert_int_equal(kv_transport_next_deadline_us(w.owner), UINT64_MAX);
    expect_closed(&w, silent);
    expect_closed(&w, dripping);
    close(half);
    expect_reading(&w); /* a reader that has nothing to say is no stranger */
    world_close(&w);
}

static size_t resident_bytes(void)
{
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &pages, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Asks for 3 GiB and never reads: bounded in memory, its owner sleeps, and others are served. One
 * ask more than may be ends it. */
static void test_a_reader_that_never_reads_is_bounded(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    expect_reading(&w);
    int fd = dial_admitted(&w);
    size_t before = resident_bytes();
    for (uint64_t i = 0; i < KV_FRAME_WINDOW; i++)
        say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {i, 0, POOL_BYTES, 0}});
    for (int i = 0; i < 300; i++)
        poll_owner(&w);
    struct pollfd idle = {kv_transport_fd(w.owner), POLLIN, 0};
    for (int i = 0; i < 100 && poll(&idle, 1, 20) > 0; i++)
        poll_owner(&w);
    assert_int_equal(poll(&idle, 1, 20), 0); /* nothing to do until it reads */
    assert_true(kv_transport_arm(w.owner));
    expect_reading(&w);
    assert_true(resident_bytes() < before + (8u << 20));
    assert_int_equal(refused(&w, KV_REFUSED_MISUSE), 0);
    say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {4711, 0, 16, 0}});
    for (uint64_t start_us = clock_now_us(); refused(&w, KV_REFUSED_MISUSE) == 0;) {
        assert_true(clock_now_us() - start_us < PATIENCE_US);
        poll_owner(&w);
        poll(&idle, 1, 100);
    }
    close(fd);
    expect_reading(&w);
    world_close(&w);
}

static void expect_served(struct world *w, int fd)
{
    say_frame(fd, &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {1, 0, 8, 0}});
    uint8_t answer[KV_FRAME_BYTES + 8];
    assert_int_equal(hear(w, fd, answer, sizeof answer), sizeof answer);
}

static void test_a_second_connection_takes_the_place_of_the_first(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    int first = dial_admitted(&w), second = dial_admitted(&w);
    expect_closed(&w, first);
    expect_served(&w, second);
    close(second);
    world_close(&w);
}

/* The order of arrival decides which connection was first, not the order of reading: the owner may
 * have been stopped meanwhile. */
static void test_a_given_up_connection_heard_late_takes_nobodys_place(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    int first = dial(&w), second = dial_admitted(&w);
    struct kv_frame hello = hello_of(&w);
    say_frame(first, &hello);
    expect_closed(&w, first);
    expect_served(&w, second);
    close(second);
    world_close(&w);
}

static void test_connections_are_limited_at_the_strangers_cost(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 4);
    expect_reading(&w); /* one of the four */
    int strangers[6];
    for (int i = 0; i < 6; i++) {
        strangers[i] = dial(&w);
        for (int k = 0; k < 5; k++)
            poll_owner(&w);
    }
    assert_int_equal(refused(&w, KV_REFUSED_LIMIT), 3); /* three have places, the newest */
    for (int i = 0; i < 3; i++)
        expect_closed(&w, strangers[i]);
    expect_reading(&w);
    int fd = dial_admitted(&w); /* a reader finds a place, too: that of the oldest stranger */
    expect_closed(&w, strangers[3]);
    expect_reading(&w);
    /* Two admissions are given: two more, and that is that. */
    struct kv_admission admissions[3];
    struct error err;
    for (int i = 0; i < 2; i++)
        assert_int_equal(kv_transport_admit(w.owner, &admissions[i], &err), STATUS_OK);
    assert_int_equal(kv_transport_admit(w.owner, &admissions[2], &err), STATUS_LIMIT);
    kv_transport_revoke(w.owner, admissions[0].id);
    assert_int_equal(kv_transport_admit(w.owner, &admissions[2], &err), STATUS_OK);
    close(fd);
    close(strangers[4]);
    close(strangers[5]);
    world_close(&w);
}

/* No descriptor for a connection: it waits, its owner neither spins nor ends, and takes it as soon
 * as it can. */
static void test_out_of_descriptors(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    expect_reading(&w);
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(w.address.port)};
    memcpy(&to.sin_addr, w.address.ip, sizeof to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), lowest = dup(fd);
    close(lowest);
    none = limit;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_true(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS);
    struct kv_frame hello = hello_of(&w);
    say_frame(fd, &hello);
    int polls = 0;
    for (uint64_t start_us = clock_now_us(); clock_now_us() - start_us < 300000; polls++) {
        poll_owner(&w);
        sleep_until_work(w.owner, -1);
    }
    uint64_t waits = refused(&w, KV_REFUSED_RESOURCES);
    struct kv_peer *peer;
    struct error err;
    enum status status = kv_transport_pair(w.reader, w.bytes, 0, &peer, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_in_range(waits, 1, 8);
    assert_in_range(polls, 1, 40);
    assert_int_equal(status, STATUS_INVALID);
    expect_verdict(&w, fd, KV_ADMITTED);
    close(fd);
    expect_reading(&w);
    world_close(&w);
}

static void test_strangers_cost_one_line_a_second(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    FILE *log = tmpfile();
    int saved = dup(2);
    dup2(fileno(log), 2);
    uint64_t start_us = clock_now_us();
    for (int i = 0; i < 100; i++) {
        int fd = dial(&w);
        say(fd, "GET / HTTP/1.0\r\n\r\n", 18);
        expect_closed(&w, fd);
    }
    uint64_t seconds = (clock_now_us() - start_us) / 1000000;
    dup2(saved, 2);
    close(saved);
    rewind(log);
    uint64_t lines = 0;
    for (char line[512]; fgets(line, sizeof line, log); lines++)
        assert_non_null(strstr(line, "reason=noise"));
    fclose(log);
    assert_in_range(lines, 1, seconds + 1);
    assert_int_equal(refused(&w, KV_REFUSED_NOISE), 100);
    world_close(&w);
}

/* -- where it listens -- */

static void test_places_to_listen(void **state)
{
    (void)state;
    static const struct {
        const char *listen, *advertise;
        bool good;
    } cases[] = {
        {"lo", NULL, true},
        {"lo:0", NULL, true},
        {"127.0.0.1", NULL, true},
        {"127.0.0.1:0", NULL, true},
        {"0.0.0.0", "127.0.0.1", true},
        {"0.0.0.0", "localhost", true},
        {"0.0.0.0", NULL, false}, /* no peer can dial that address */
        {"0.0.0.0", "", false},
        {"0.0.0.0", "no such host!", false},
        {"none0", NULL, false},
        {"lo:65536", NULL, false},
        {"lo:x", NULL, false},
        {"[::1", NULL, false},
        {"[::1]7", NULL, false},
        {"192.0.2.1", NULL, false}, /* not an address of this machine */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kv_transport_config config = {
            .kind = KV_TRANSPORT_REMOTE,
            .lane = KV_LANE_TCP,
            .pool_bytes = POOL_BYTES,
            .max_reads = 4,
            .bind_interface = cases[i].listen,
            .advertise = cases[i].advertise,
        };
        struct world w = {0};
        struct error err = {""};
        enum status status = kv_transport_open(&config, &w.owner, &err);
        if (!cases[i].good) {
            assert_int_not_equal(status, STATUS_OK);
            assert_true(strlen(err.text) > 20);
            continue;
        }
        if (status != STATUS_OK)
            fail_msg("%s: %s", cases[i].listen, err.text);
        kv_transport_serve(w.owner, serve_all, NULL);
        fill_pattern(kv_transport_pool(w.owner), POOL_BYTES);
        w.reader = open_at(NULL, 0);
        w.peer = pair_with(w.reader, w.owner);
        expect_reading(&w);
        world_close(&w);
    }
}

/* If this machine has IPv6, it works like IPv4; otherwise it is refused with a sentence. */
static void test_ipv6(void **state)
{
    (void)state;
    struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool there = probe >= 0 && bind(probe, (struct sockaddr *)&own, sizeof own) == 0;
    if (probe >= 0)
        close(probe);
    struct kv_transport_config config = {
        .kind = KV_TRANSPORT_REMOTE,
        .lane = KV_LANE_TCP,
        .pool_bytes = POOL_BYTES,
        .max_reads = 4,
        .bind_interface = "[::1]:0",
    };
    struct world w = {0};
    struct error err = {""};
    enum status status = kv_transport_open(&config, &w.owner, &err);
    if (!there) {
        assert_int_not_equal(status, STATUS_OK);
        assert_non_null(strstr(err.text, "::1"));
        return;
    }
    assert_int_equal(status, STATUS_OK);
    kv_transport_serve(w.owner, serve_all, NULL);
    fill_pattern(kv_transport_pool(w.owner), POOL_BYTES);
    w.reader = open_at("::1", 0);
    w.peer = pair_with(w.reader, w.owner);
    admit_to(&w);
    assert_int_equal(w.address.ip_version, 6);
    expect_reading(&w);
    world_close(&w);
}

/* Another owner on the same port, at once: it does not know the old secret. The old pairing never
 * comes up, and the owner reports it. */
static void test_restarted_on_the_same_port(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 0);
    expect_reading(&w);
    struct kv_admission old = admit(w.owner);
    char listen[32];
    snprintf(listen, sizeof listen, "127.0.0.1:%u", w.address.port);
    kv_transport_close(w.owner);
    w.owner = open_at(listen, 0);
    fill_pattern(kv_transport_pool(w.owner), POOL_BYTES);
    struct kv_event event = reader_event(&w);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_int_equal(event.failure, KV_FAILURE_PEER_GONE);
    assert_true(event.welcomed);
    struct error err;
    assert_int_equal(kv_transport_pair(w.reader, old.address, old.bytes, &w.peer, &err), STATUS_OK);
    struct kv_read_run run = {0, 0, 4096, 0};
    assert_int_equal(kv_transport_read(w.reader, w.peer, &run, 1, clock_now_us() + PATIENCE_US, 1),
                     STATUS_OK);
    event = reader_event(&w);
    assert_int_equal(event.kind, KV_EVENT_READ_DONE);
    assert_int_equal(event.failure, KV_FAILURE_REFUSED);
    event = reader_event(&w);
    assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
    assert_false(event.welcomed);
    w.peer = pair_with(w.reader, w.owner);
    expect_reading(&w);
    assert_int_equal(kv_transport_counters(w.reader).reads_failed[KV_FAILURE_REFUSED], 1);
    world_close(&w);
    /* No owner listens at all. */
    struct kv_transport *reader = open_at("lo", 0);
    struct kv_peer *peer;
    if (kv_transport_pair(reader, old.address, old.bytes, &peer, &err) == STATUS_OK) {
        event = next_event(reader);
        assert_int_equal(event.kind, KV_EVENT_PEER_CLOSED);
        assert_int_equal(event.failure, KV_FAILURE_UNREACHABLE);
        assert_false(event.welcomed);
        assert_non_null(strstr(event.reason, "refused"));
    }
    kv_transport_close(reader);
}

/* Every reader takes bytes as fast as the owner sends. So all connections are ready at every poll,
 * and they are more than one poll serves. */
static void test_readers_share_the_owner(void **state)
{
    (void)state;
    enum { READERS = 6, POLLS = 200 };
    struct world w;
    world_open(&w, 0);
    int fds[READERS];
    size_t heard[READERS] = {0}, chunk = (size_t)8 << 20;
    uint8_t *bytes = malloc(chunk);
    for (int i = 0; i < READERS; i++) {
        admit_to(&w);
        fds[i] = dial_admitted(&w);
        for (uint64_t n = 0; n < KV_FRAME_WINDOW; n++)
            say_frame(fds[i],
                      &(struct kv_frame){.kind = KV_FRAME_ASK, .ask = {n, 0, POOL_BYTES, 0}});
    }
    for (int poll = 0; poll < POLLS; poll++) {
        poll_owner(&w);
        for (int i = 0; i < READERS; i++)
            for (ssize_t got; (got = recv(fds[i], bytes, chunk, 0)) > 0;)
                heard[i] += (size_t)got;
    }
    size_t all = 0;
    for (int i = 0; i < READERS; i++)
        all += heard[i];
    for (int i = 0; i < READERS; i++) {
        assert_in_range(heard[i], all / READERS / 2, all);
        close(fds[i]);
    }
    free(bytes);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_is_closed_and_harms_nobody),
        cmocka_unit_test(test_wrong_and_revoked_secrets_are_refused),
        cmocka_unit_test(test_another_version_is_told_so),
        cmocka_unit_test(test_asks_for_what_there_is_not_end_the_connection),
        cmocka_unit_test(test_frames_in_pieces_are_answered),
        cmocka_unit_test(test_an_ask_without_a_grant_gets_no_byte),
        cmocka_unit_test(test_a_refused_read_leaves_its_pairing),
        cmocka_unit_test(test_bytes_of_a_grant_that_has_ended_are_zeros),
        cmocka_unit_test(test_the_late_are_closed),
        cmocka_unit_test(test_a_reader_that_never_reads_is_bounded),
        cmocka_unit_test(test_a_second_connection_takes_the_place_of_the_first),
        cmocka_unit_test(test_a_given_up_connection_heard_late_takes_nobodys_place),
        cmocka_unit_test(test_connections_are_limited_at_the_strangers_cost),
        cmocka_unit_test(test_out_of_descriptors),
        cmocka_unit_test(test_strangers_cost_one_line_a_second),
        cmocka_unit_test(test_places_to_listen),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_restarted_on_the_same_port),
        cmocka_unit_test(test_readers_share_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
