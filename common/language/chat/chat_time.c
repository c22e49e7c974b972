#include "common/language/chat/chat_time.h"

#include <time.h>

struct template_time chat_time_now(void)
{
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    return (struct template_time){.year = local.tm_year + 1900,
                                  .month = local.tm_mon + 1,
                                  .day = local.tm_mday,
                                  .hour = local.tm_hour,
                                  .minute = local.tm_min,
                                  .second = local.tm_sec,
                                  .microsecond = (int)(now.tv_nsec / 1000)};
}
