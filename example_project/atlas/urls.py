"""URLs of the pages about trips."""

from django.urls import path

from example_project.atlas import pages

app_name = "trips"
urlpatterns = [
    path("<int:pk>/", pages.TripPage.as_view(), name="page"),
    path("<int:pk>/calendar/", pages.TripCalendar.as_view(), name="calendar"),
    path("<int:pk>/again/", pages.TripAgain.as_view(), name="again"),
]
