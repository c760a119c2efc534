"""The atlas in the admin."""

from django.contrib import admin

from example_project.atlas.models import City, Continent, Country, Stop, Trip


@admin.register(Continent)
class ContinentAdmin(admin.ModelAdmin):
    list_display = ["name", "code", "population"]


@admin.register(Country)
class CountryAdmin(admin.ModelAdmin):
    list_display = ["name", "code", "capital", "continent", "population"]
    list_filter = ["continent"]
    list_select_related = ["continent"]
    search_fields = ["name", "code", "capital"]
    autocomplete_fields = ["neighbours"]


@admin.register(City)
class CityAdmin(admin.ModelAdmin):
    list_display = ["name", "country", "admin_code", "population", "timezone"]
    list_filter = ["country__continent"]
    list_select_related = ["country"]
    search_fields = ["plain_name", "name"]
    autocomplete_fields = ["country"]
    show_full_result_count = False


class StopInline(admin.TabularInline):
    model = Stop
    autocomplete_fields = ["city"]
    extra = 1


@admin.register(Trip)
class TripAdmin(admin.ModelAdmin):
    list_display = ["title", "owner", "starts", "ends", "status"]
    list_filter = ["status"]
    list_select_related = ["owner"]
    search_fields = ["title"]
    date_hierarchy = "starts"
    inlines = [StopInline]


@admin.register(Stop)
class StopAdmin(admin.ModelAdmin):
    list_display = ["trip", "position", "city", "arrival"]
    list_select_related = ["trip", "city"]
    autocomplete_fields = ["trip", "city"]
